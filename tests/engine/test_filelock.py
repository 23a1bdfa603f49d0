"""Programs that take an agent's locks with the library filelock, and ours, exclude each other."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import pytest

from agentsdir.formats.errors import Busy
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import AgentPaths

HOLDER = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1], mode=0o600):
    print("held", flush=True)
    sys.stdin.read()
"""


class Held:
    """A process that holds a lock with filelock until `end` is called."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "held\n"

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Have it let go, and wait until it has."""
        self._process.communicate()


@pytest.fixture
def agent(stage: Any) -> AgentPaths:
    """Return an agent that has taken a turn, so that its locks are there."""
    made: AgentPaths = stage.new()
    stage.send(made)
    return made


@pytest.fixture
def impatient(agent: AgentPaths) -> Iterator[None]:
    """Have no lock be waited for long, now that the agent's turn is over."""
    del agent
    waits = locks.Waits()
    waits.limit = 0
    locks.count_on(waits)
    yield
    locks.count_on(locks.Waits())


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("stands", [True, False], ids=["a lock file", "none yet"])
@pytest.mark.parametrize("name", [".turn", ".lock"])
def test_a_lock_that_filelock_holds_keeps_us_out(
    agent: AgentPaths, stage: Any, name: str, stands: bool
) -> None:
    """Nothing is appended by those who need it, until it is let go."""
    path = agent.folder / name
    if not stands:
        path.unlink()
    before = agent.log.read_bytes()
    with Held(path) as holder:
        assert locks.is_held(path)
        with pytest.raises(Busy), locks.hold(path, wait=0):
            pass
        if name == ".turn":
            with pytest.raises(Busy):
                stage.send(agent, "no turn", wait=0)
            # A message is left all the same: that needs the other lock.
            assert agent.log.read_bytes() != before
        else:
            with pytest.raises(Busy):
                stage.enqueue(agent, "no")
            assert agent.log.read_bytes() == before
        holder.end()
    assert not locks.is_held(path)
    assert stage.send(agent, "now").response == "now"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_agent(agent, whole=True).findings == ()


@pytest.mark.parametrize("name", [".turn", ".lock"])
def test_a_lock_that_we_hold_keeps_filelock_out(agent: AgentPaths, name: str) -> None:
    """Also in another thread, and until we let go; what stands in the file is left as it is."""
    path = agent.folder / name
    path.write_bytes(b"a note")
    with locks.hold(path, wait=0):
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(path, mode=0o600, timeout=0).acquire()
        begun = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert begun.poll() is None
        assert path.read_bytes() == b"a note"
    assert begun.stdout is not None
    assert begun.stdout.readline() == "held\n"
    assert locks.is_held(path)
    begun.communicate()
    with filelock.FileLock(path, mode=0o600, timeout=0):
        assert locks.is_held(path)
    assert not locks.is_held(path)


def test_many_of_both_kinds_are_one_at_a_time(agent: AgentPaths) -> None:
    """Each reads a number, and writes the next: none is lost."""
    path, number = agent.lock, agent.folder / "number"
    number.write_text("0")

    def next_number() -> None:
        number.write_text(str(int(number.read_text()) + 1))

    def theirs() -> None:
        for _ in range(50):
            with filelock.FileLock(path, mode=0o600, is_singleton=False):
                next_number()

    threads = [threading.Thread(target=theirs) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(50):
        with locks.hold(path, wait=locks.FOREVER):
            next_number()
    for thread in threads:
        thread.join()
    assert number.read_text() == "150"


def test_who_comes_to_a_replaced_lock_gets_the_new_file_and_only_our_holder_finds_out(
    agent: AgentPaths,
) -> None:
    """It writes no more; a holder of the library's goes on, and knows nothing (D10)."""
    path = agent.lock
    with locks.hold(path, wait=0) as held:
        _empty(agent).replace(path)
        theirs = filelock.FileLock(path, mode=0o600, timeout=0)
        with theirs, pytest.raises(Busy, match="replaced"):
            held.check()
    with theirs:
        _empty(agent).replace(path)
        with locks.hold(path, wait=0):
            assert theirs.is_locked


@pytest.mark.parametrize("name", [".turn", ".lock"])
def test_a_waiter_of_the_library_gets_the_file_that_was_put_in_place(
    agent: AgentPaths, name: str
) -> None:
    """As a waiter of ours does: it does not wait on for a file that is gone."""
    path = agent.folder / name
    with locks.hold(path, wait=0):
        waiter = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)  # fmt: skip
        _empty(agent).replace(path)
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == "held\n"
        assert locks.is_held(path)
        waiter.communicate()


def _empty(agent: AgentPaths) -> Path:
    other = agent.folder / "other"
    other.touch(mode=0o600)
    return other
