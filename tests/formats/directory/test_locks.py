"""Kernel locks."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.errors import Busy, NoSuchAgent, NotRecorded, UnsafePath
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent

HOLDER = """
import sys
from pathlib import Path
from agentsdir.formats.store import locks
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
    """A FIFO without a writer, a link, a folder: no process holds those."""
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


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_who_waited_on_a_lock_file_that_is_gone_takes_the_one_that_stands(
    tmp_path: Path, how: str
) -> None:
    """The old file locks nothing any more; a holder of it gets an error before it writes."""
    path = tmp_path / ".lock"
    with locks.hold(path) as held:
        held.check()
        path.unlink()
        if how == "replaced":
            path.write_bytes(b"")
        with pytest.raises(Busy, match="removed or replaced"):
            held.check()
        with locks.hold(path, wait=0) as other:
            other.check()
            assert locks.is_held(path)


def test_a_writer_whose_lock_file_was_removed_writes_nothing_more(agents: Any) -> None:
    """Another one may be at work under the new file."""
    paths = agents.publish()
    with write_agent(paths) as writer:
        writer.append("history.reset", {}, agents.now())
        before = paths.log.read_bytes()
        paths.lock.unlink()
        with pytest.raises(Busy):
            writer.append("history.reset", {}, agents.now())
    assert paths.log.read_bytes() == before


def test_who_waits_for_an_agent_that_is_removed_does_not_bring_its_folder_back(
    tmp_path: Path,
) -> None:
    """The wait ends with the error of an agent that is not there."""
    folder = tmp_path / "agent"
    folder.mkdir()
    path = folder / ".turn"
    raised: list[Exception] = []

    def wait() -> None:
        try:
            with locks.hold(path):
                pass
        except NoSuchAgent as error:
            raised.append(error)

    with locks.hold(path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        path.unlink()
        folder.rmdir()
    waiting.join(timeout=30)
    assert len(raised) == 1
    assert not folder.exists()


def test_a_look_by_a_reader_does_not_make_a_writer_give_up(tmp_path: Path) -> None:
    """A reader has its share for an instant only, and a writer that does not wait outlasts it."""
    path = tmp_path / ".turn"
    with locks.hold(path):
        pass
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            locks.is_held(path)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(100):
            with locks.hold(path, wait=0):
                pass
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_a_forked_child_neither_owns_nor_keeps_a_lock(tmp_path: Path) -> None:
    """Its copy is closed at the fork; the parent's lock goes on, and ends with the parent's."""
    path = tmp_path / ".turn"
    script = """
        import os, sys
        from pathlib import Path
        from agentsdir.formats.store import locks
        path = Path(sys.argv[1])
        tried, trying = os.pipe()
        with locks.hold(path):
            if os.fork() == 0:
                try:
                    with locks.hold(path, wait=0):
                        print("both", flush=True)
                except Exception as error:
                    print(error.kind, flush=True)
                os.write(trying, b"x")
                sys.stdin.read()
                os._exit(0)
            os.read(tried, 1)
            print("still", locks.is_held(path), flush=True)
            os._exit(0)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "locked\n"
        assert process.stdout.readline() == "still True\n"
        process.wait(timeout=30)
        with locks.hold(path, wait=0):
            pass
        process.stdin.close()
