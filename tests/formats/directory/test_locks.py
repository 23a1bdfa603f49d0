"""Kernel locks."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.errors import Busy, NotRecorded, UnsafePath

HOLDER = """
import sys
from pathlib import Path
from agentsdir.formats.directory import locks
with locks.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """Start a process that holds `path` until its stdin closes; return when it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_held_by_another_process_keeps_us_out_and_dies_with_it(tmp_path: Path) -> None:
    """Killed without warning, it leaves nothing to clean."""
    path = tmp_path / ".turn"
    with holder(path) as process:
        assert locks.is_held(path)
        with pytest.raises(Busy, match="agent x"), locks.hold(path, wait=0, what="agent x"):
            pass
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not locks.is_held(path)
        with locks.hold(path, wait=0):
            assert locks.is_held(path)
    assert not locks.is_held(path)


def test_a_lock_is_waited_for_as_long_as_was_asked(tmp_path: Path) -> None:
    """It is taken as soon as the holder lets go."""
    path = tmp_path / ".turn"
    with holder(path) as process:
        with pytest.raises(Busy), locks.hold(path, wait=0.05):
            pass
        taken = threading.Event()

        def take() -> None:
            with locks.hold(path):
                taken.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        assert not taken.is_set()
        assert process.stdin is not None
        process.stdin.close()
        waiting.join(timeout=30)
        assert taken.is_set()


def test_the_lock_file_stays_and_is_private(tmp_path: Path) -> None:
    """Removing it would let two processes hold two files of one name."""
    path = tmp_path / ".lock"
    before = os.umask(0)
    try:
        with locks.hold(path):
            inode = path.stat().st_ino
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with locks.hold(path):
        assert path.stat().st_ino == inode


def test_asking_whether_a_lock_is_held_creates_nothing_and_holds_nothing(tmp_path: Path) -> None:
    """A missing file is not held; asking does not keep a writer out."""
    path = tmp_path / ".turn"
    assert not locks.is_held(path)
    assert not path.exists()
    with locks.hold(path):
        pass
    assert not locks.is_held(path)
    with locks.hold(path, wait=0):
        pass


@pytest.mark.parametrize("what", ["fifo", "link", "folder"])
def test_asking_about_something_that_is_no_lock_does_not_hang(tmp_path: Path, what: str) -> None:
    """A FIFO without a writer, a link, a folder: nobody holds those."""
    path = tmp_path / ".turn"
    if what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(tmp_path / "nowhere")
    else:
        path.mkdir()
    assert not locks.is_held(path)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("what", ["link", "folder", "file as folder"])
def test_what_cannot_be_locked_is_refused(tmp_path: Path, what: str) -> None:
    """There is no soft lock instead."""
    path = tmp_path / ".turn"
    if what == "link":
        path.symlink_to(tmp_path / "nowhere")
    elif what == "folder":
        path.mkdir()
    else:
        path.write_text("")
        path = path / "x"
    with pytest.raises((NotRecorded, UnsafePath)), locks.hold(path, wait=0):
        pass
    assert not (tmp_path / "nowhere").exists()


def test_a_lock_is_released_when_its_holder_fails(tmp_path: Path) -> None:
    """Whatever was raised inside."""
    path = tmp_path / ".lock"
    with pytest.raises(KeyboardInterrupt), locks.hold(path):
        raise KeyboardInterrupt
    with locks.hold(path, wait=0):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_until_an_append_is_over_and_its_lock_is_free(
    agents: Any, number: int
) -> None:
    """So that the process never waits for a lock that it holds itself."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    def append() -> None:
        with write_agent(paths) as writer:
            signal.raise_signal(number)
            writer.append("history.reset", {}, agents.now())

    before = signal.signal(number, interrupt)
    paths = agents.publish()
    try:
        with pytest.raises(KeyboardInterrupt):
            append()
    finally:
        signal.signal(number, before)
    assert read_agent(paths, whole=True).state.position.last_seq == 2
    assert not locks.is_held(paths.lock)
    assert number not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
