"""Locks when their holders die, their files go away, or the system has none to give."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Console
from machine import inject, need

from agentsdir.formats.errors import Busy
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout

HOLDER = """
import os, signal, sys
from pathlib import Path
from agentsdir.formats.store import locks
with locks.hold(Path(sys.argv[1])):
    if "fork" in sys.argv and os.fork() == 0:
        print(os.getpid(), flush=True)
        signal.pause()
    if "fork" not in sys.argv:
        print("held", flush=True)
    sys.stdin.read()
"""
# Says each step on stdout; holds the lock until its stdin closes.
WAITER = """
import sys
from pathlib import Path
from agentsdir.formats.store import locks
print("waits", flush=True)
with locks.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that says on stdout how far it has come."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def until(condition: Callable[[], bool]) -> None:
    """Poll until `condition` holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.005)


def waits_for(process: subprocess.Popen[str], path: Path) -> bool:
    """Tell whether a process has a file open, as one that waits for its lock has."""
    folder = Path(f"/proc/{process.pid}/fd")
    return any(os.path.realpath(link) == str(path) for link in folder.iterdir())


@pytest.mark.parametrize("lock", [".turn", ".lock"])
def test_when_a_holder_is_killed_the_next_writer_gets_in_without_waiting(
    tmp_path: Path, lock: str
) -> None:
    """There is nothing to clean and nothing to wait for, for a reader neither."""
    console = Console(tmp_path / "root", tmp_path)
    agent = console.new()
    console.ok("send", agent, "hello")
    path = console.folder(agent) / lock
    with python(HOLDER, str(path)) as holder:
        assert said(holder) == "held"
        assert locks.is_held(path)
        if lock == ".turn":
            assert console("send", agent, "x", "--wait", "0").code == 11
        holder.kill()
        holder.wait()
    assert not locks.is_held(path)
    assert console("send", agent, "again", "--wait", "0").code == 0
    assert console.problems() == []


def test_a_forked_child_keeps_no_lock_of_its_parent(tmp_path: Path) -> None:
    """When the parent is killed the lock is free, although the child lives on."""
    need("linux")
    path = tmp_path / ".turn"
    with python(HOLDER, str(path), "fork") as parent:
        child = int(said(parent))
        try:
            assert locks.is_held(path)
            parent.kill()
            parent.wait()
            os.kill(child, 0)
            assert not locks.is_held(path)
            with locks.hold(path, wait=0):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_program_that_a_holder_starts_keeps_no_lock(tmp_path: Path) -> None:
    """A provider's process that outlives a killed `send` keeps no other out."""
    path = tmp_path / ".turn"
    starts = HOLDER.replace("os.fork() == 0", "start()").replace(
        "with locks",
        "def start():\n"
        "    import subprocess\n"
        "    child = subprocess.Popen(['sleep', '600'], close_fds=False, stdout=2)\n"
        "    print(child.pid, flush=True)\n"
        "with locks",
        1,
    )
    with python(starts, str(path), "fork") as parent:
        child = int(said(parent))
        try:
            parent.kill()
            parent.wait()
            os.kill(child, 0)
            with locks.hold(path, wait=0):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("replaced", [False, True], ids=["unlinked", "replaced"])
def test_a_writer_that_waited_for_a_lock_file_that_is_gone_takes_the_one_that_is_there(
    tmp_path: Path, replaced: bool
) -> None:
    """Else it and the next one would hold two files of one name, both of them inside."""
    need("linux")
    path = tmp_path / ".turn"
    with python(HOLDER, str(path)) as holder:
        assert said(holder) == "held"
        with python(WAITER, str(path)) as waiter:
            assert said(waiter) == "waits"
            # A waiter may hold the file open all the time, or only when it looks.
            patience = time.monotonic() + 0.5
            until(lambda: waits_for(waiter, path) or time.monotonic() > patience)
            old = path.stat().st_ino
            keep = path.rename(tmp_path / "old")  # so that its inode is not used again
            if replaced:
                path.touch(mode=0o600)
            assert holder.stdin is not None
            holder.stdin.close()
            assert said(waiter) == "held"
            assert path.stat().st_ino != old == keep.stat().st_ino
            with pytest.raises(Busy), locks.hold(path, wait=0):
                pass
            assert locks.is_held(path)
            assert waiter.stdin is not None
            waiter.stdin.close()


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("send", "ENOSYS"),
        ("send", "ENOLCK"),
        ("send", "EOPNOTSUPP"),
        ("suspend", "ENOLCK"),
        ("new", "ENOSYS"),
        ("restore", "ENOLCK"),
    ],
)
def test_where_the_system_has_no_locks_nothing_is_written(
    tmp_path: Path, verb: str, error: str
) -> None:
    """Exit 15; never a lock of another kind, which others would not see."""
    need("strace")
    console = Console(tmp_path / "root", tmp_path)
    agent = console.new()
    console.ok("send", agent, "hello")
    arguments = {"send": [agent, "again"], "suspend": [agent], "new": [], "restore": [agent]}
    before = {path: path.read_bytes() for path in console.root.rglob("*") if path.is_file()}
    done = console.process(verb, *arguments[verb], before=inject(f"flock:error={error}"))
    assert (done.code, done.quiet) == (15, True), done
    assert "lock" in done.err
    after = {path: path.read_bytes() for path in console.root.rglob("*") if path.is_file()}
    assert {path.name for path in set(after) - set(before)} <= {".lock"}
    assert before.items() <= after.items()
    assert console.problems() == []


def test_a_reader_where_the_system_has_no_locks_reads(tmp_path: Path) -> None:
    """No lock can say whether a turn runs; what is on disk is shown."""
    need("strace")
    console = Console(tmp_path / "root", tmp_path)
    agent = console.new()
    console.ok("send", agent, "hello")
    for verb in (["list"], ["inspect", agent], ["replay", agent]):
        done = console.process(*verb, before=inject("flock:error=ENOLCK"))
        assert (done.code, done.err) == (0, ""), done
        if verb != ["replay", agent]:
            assert '"running"' not in done.out


def test_a_turn_goes_on_when_its_lock_file_is_taken_away(tmp_path: Path) -> None:
    """What it wrote is whole, and so is what the next one writes."""
    console = Console(tmp_path / "root", tmp_path)
    script = tmp_path / "talk.jsonl"
    script.write_text('{"type":"sleep","seconds":600}\n')
    agent = console.new("--provider", "script", "--option", f"file={script}")
    with console.start("send", agent, "hello") as running:
        try:
            until(lambda: b"turn.start" in console.log(agent).read_bytes())
            (console.folder(agent) / ".lock").unlink()
        finally:
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=60)
    assert running.returncode == 143
    reading = read_agent(Layout(console.root).agent(agent), whole=True)
    assert (reading.findings, reading.state.open_turn) == ((), None)
    assert console.problems() == []
