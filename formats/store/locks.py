"""Kernel locks that die with their holder, and the note of the holder of `.turn` (decision D10)."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Busy, Invalid, NoSuchAgent, NotRecorded, UsageError
from agentsdir.formats.signals import check, sleep, undisturbed
from agentsdir.formats.store.layout import open_plain, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.store.layout import AgentPaths


# Kernel locks that die with their holder (decision D10; SPEC.md, "Locks and durability").
#
# `flock` on files that stay when released. Order, never reversed: root create lock, an agent's
# `.turn`, slots, an agent's `.lock`.
#
# A lock file that was removed or replaced locks nothing any more. So a process that takes a lock
# checks that its file is still the one at the path, and else takes that one; a holder can check
# the same before it writes (`Held.check`).

FOREVER = -1.0
NEVER = float("inf")
"""A time that does not come."""
PATIENCE = 30.0
"""Seconds that a command waits in all, in vain, for locks that no process holds for long."""
LEAST = 1.0
"""Seconds that it waits for those however short the time is that it was given."""
SAY_AFTER = 1.0
"""Seconds after which a wait is said."""
# A reader that asks whether a lock is held has a share of it for some microseconds.
GRACE = 0.05
_LONG_PAUSE = 0.02
_SHORT_PAUSE = 0.005

_held: set[int] = set()


def _let_go() -> None:
    """Close a forked child's copies: a lock is its taker's, and must not outlive it in a child."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


class Held(NamedTuple):
    """A lock that this thread holds; `status` is what the system says of its file."""

    path: Path
    descriptor: int
    status: os.stat_result

    def check(self) -> None:
        """Raise `Busy` when the lock file was removed or replaced: others may hold its name."""
        if not _stands(self.status, self.path):
            raise Busy(
                f"{self.path} was removed or replaced while it was held; nothing was written",
                hint="another process may be at work; never remove lock files",
            )


class Waits:
    """What one command may wait for locks, and what it has waited (docs/behaviour.md, "Waiting").

    Args:
        tell: is given a sentence when a wait gets long.

    `limit` are the seconds that all its waits may take together; negative for no limit but
    `PATIENCE`.
    """

    def __init__(self, tell: Callable[[str], None] = lambda _text: None) -> None:
        self.tell = tell
        self.limit = FOREVER
        self._spent = 0.0
        self._impatient = 0.0

    def left(self, wait: float, *, brief: bool) -> float:
        """Return how many seconds a wait may take that begins now.

        Args:
            wait: seconds that it may take by itself; negative for no limit of its own.
            brief: whether it is for a lock that no process holds for long.
        """
        left = NEVER if wait < 0 else wait
        if self.limit >= 0:
            rest = self.limit - self._spent
            left = min(left, max(rest, LEAST - self._impatient) if brief else rest)
        elif brief:
            left = min(left, PATIENCE - self._impatient)
        return max(left, 0.0)

    def add(self, seconds: float, *, in_vain: bool = False) -> None:
        """Count a wait that is over.

        Args:
            in_vain: whether a brief lock was given up. Where it was got, its holders were at work.
        """
        self._spent += seconds
        if in_vain:
            self._impatient += seconds


_waits: ContextVar[Waits] = ContextVar("waits")


def count_on(waits: Waits) -> None:
    """Have the waits of this thread counted, from now on, as those of one command."""
    _waits.set(waits)


def waits() -> Waits:
    """Return what counts the waits of the command that this thread runs."""
    found = _waits.get(None)
    if found is None:
        count_on(found := Waits())
    return found


class Wait:
    """One wait for a lock, from its first failed try on.

    Args:
        path: the lock's file.
        what: what is locked, for messages.
        wait: seconds that it may take; negative for ever.
        brief: whether the lock is one that no process holds for long.
        more: says what its holder does; called where the wait gets long, and where it is over.
    """

    def __init__(
        self, path: Path, what: str, wait: float, *, brief: bool, more: Callable[[], str] = str
    ) -> None:
        self._path = path
        self._what = what
        self._brief = brief
        self._more = more
        self._waits = waits()
        self._begun = time.monotonic()
        self._end = self._begun + max(self._waits.left(wait, brief=brief), GRACE)
        self._say_at = self._begun + SAY_AFTER

    def pause(self, seconds: float, sleep: Callable[[float], None] = sleep) -> bool:
        """Sleep for some seconds; False, at once, where the wait has taken long enough.

        Raises what breaks off the work of this thread (`signals.check`).
        """
        now = time.monotonic()
        if now >= self._end:
            self._waits.add(now - self._begun, in_vain=self._brief)
            return False
        if now >= self._say_at:
            self._say_at = NEVER
            self._waits.tell(f"waiting: {self.why}")
        sleep(seconds)
        check()
        return True

    def end(self) -> None:
        """Count a wait that was not in vain."""
        self._waits.add(time.monotonic() - self._begun)

    @property
    def why(self) -> str:
        """What keeps this thread, in words."""
        holder = _holder(self._path)
        who = f"{self._what} is held by another process{f' ({holder})' if holder else ''}"
        if holder == str(os.getpid()):
            who = f"{self._what} is held by another thread of this process"
        more = self._more()
        return f"{who}: {more}" if more else who


@contextmanager
def hold(
    path: Path,
    *,
    wait: float = FOREVER,
    brief: bool = False,
    what: str = "",
    hint: str = "--wait SECONDS waits for it",
    more: Callable[[], str] = str,
) -> Iterator[Held]:
    """Hold the lock file at `path`, which stays when released.

    Args:
        wait: seconds to wait for another holder; negative waits for ever, 0 does not wait. The
            command's `Waits` may leave less.
        brief: whether no process holds this lock for long, so that the wait for it has an end.
        what: what is locked, for the message.
        hint: what to do when it stays held, for the message.
        more: says what its holder does, for the message.

    Raises `Busy` when the time is over, `NoSuchAgent` when the folder is gone, `UnsafePath` for
    anything but a regular file, `NotRecorded` where the system cannot lock.
    """
    if wait != wait:  # not a number
        raise UsageError("a time to wait is a number of seconds")
    taken = None
    try:
        waiting = None
        while (taken := _take(path)) is None:
            waiting = waiting or Wait(path, what or str(path), wait, brief=brief, more=more)
            if not waiting.pause(_LONG_PAUSE if wait else _SHORT_PAUSE):
                raise Busy(waiting.why, hint=_BRIEF_HINT if brief else hint)
        if waiting is not None:
            waiting.end()
        yield taken
    finally:
        if taken is not None:
            _release(taken)


_BRIEF_HINT = "try again; a process that is stopped goes on with `kill -CONT`"


@contextmanager
def hold_undisturbed(path: Path, *, what: str = "", patient: bool = False) -> Iterator[Held]:
    """Hold a lock for a short block that no signal interrupts; waiting for it, they do.

    Args:
        what: what is locked, for the message.
        patient: wait for ever, as for what would be lost otherwise.

    Raises what `hold` does for a lock that is held briefly.
    """
    waiting = None
    while True:
        with undisturbed():
            if (taken := _take(path)) is not None:
                try:
                    if waiting is not None:
                        waiting.end()
                    yield taken
                finally:
                    _release(taken)
                return
        waiting = waiting or Wait(path, what or str(path), FOREVER, brief=not patient)
        if not waiting.pause(_SHORT_PAUSE):
            raise Busy(waiting.why, hint=_BRIEF_HINT)


def _holder(path: Path) -> str:
    """Return the number of the process that holds a lock, and whether it is stopped; or nothing."""
    try:
        status = path.lstat()
        where = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        with open("/proc/locks", encoding="ascii") as table:  # noqa: PTH123, no file of ours
            held = [line.split() for line in table]
        pid = next(row[4] for row in held if row[1:2] == ["FLOCK"] and row[5] == where)
        if int(pid) <= 0:  # of another container
            return ""
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:  # noqa: PTH123
            state = stat.read().rpartition(")")[2].split()[0]
    except (OSError, ValueError, IndexError, StopIteration):  # a system that does not say
        return ""
    return f"{pid}, stopped" if state in "Tt" else pid


def _take(path: Path) -> Held | None:
    """Take the lock if no process has it."""
    try:
        descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        raise NoSuchAgent(f"{path.parent} is gone") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(descriptor)
        stands = _stands(status, path)
    except BlockingIOError:
        stands = False
    except OSError as error:
        os.close(descriptor)
        raise NotRecorded(f"cannot lock {path}: {error.strerror}") from error
    if not stands:
        os.close(descriptor)
        return None
    _held.add(descriptor)
    return Held(path, descriptor, status)


def _stands(status: os.stat_result, path: Path) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return found.st_ino == status.st_ino and found.st_dev == status.st_dev


def _release(taken: Held) -> None:
    if taken.descriptor in _held:  # else this is a forked child, which has closed its copy
        _held.discard(taken.descriptor)
        # Not by `close` alone: a process that another thread starts has copies until its `exec`.
        with suppress(OSError):
            fcntl.flock(taken.descriptor, fcntl.LOCK_UN)
        os.close(taken.descriptor)


def is_held(path: Path | str) -> bool:
    """Tell whether some process holds the lock, by asking for a share of it for an instant."""
    try:
        # O_NONBLOCK: a FIFO planted in place of a lock must not hang a reader.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks on this file system: a writer raises
        return False
    finally:
        os.close(descriptor)
    return False


# What the holder of `.turn` writes into it: whose turn, and which processes (decision D14).
#
# A note for the next process, which may find the holder dead. It is written in place and never
# fsynced: no process outlives the machine. Bytes that make no sense are no note.

_MOST = 4096


class Started(NamedTuple):
    """A process: its id, and its start time in clock ticks since boot, so that it is no other."""

    pid: int
    started: int


class OpenQuestion(NamedTuple):
    """A call of a tool that waits for permission, and since when."""

    tool_name: str
    at: str


class TurnNote(NamedTuple):
    """A turn, the process that runs it, and the program that this process runs.

    `question` is what the program waits for at the moment.
    """

    turn_id: str
    holder: Started
    process: Started
    question: OpenQuestion | None = None


def write_note(held: Held, note: TurnNote) -> None:
    """Write the note into the lock file that this process holds. Raises `NotRecorded`, `Busy`."""
    held.check()
    document: dict[str, Any] = {
        "turn_id": note.turn_id,
        "holder": note.holder._asdict(),
        "process": note.process._asdict(),
    }
    if note.question is not None:
        document["question"] = jsontext.clean(note.question._asdict(), set())
    _write(held, jsontext.encode(document) + b"\n")


def clear_note(held: Held) -> None:
    """Leave the lock file empty. Raises `NotRecorded`."""
    _write(held, b"")


def _write(held: Held, data: bytes) -> None:
    try:
        # A process that is killed in between leaves the new note, with spaces behind it.
        there = min(os.fstat(held.descriptor).st_size, _MOST)
        padded = data.ljust(there) if data else b""
        if padded and os.pwrite(held.descriptor, padded, 0) != len(padded):
            raise NotRecorded(f"cannot write {held.path}: the disk is full")
        os.ftruncate(held.descriptor, len(data))
    except OSError as error:
        raise NotRecorded(f"cannot write {held.path}: {error.strerror}") from error


def read_note(paths: AgentPaths) -> TurnNote | None:
    """Return what stands in `.turn`, or None where that is nothing, or makes no sense."""
    try:
        data = read_bytes(paths.turn, _MOST)
        found = jsontext.decode(data) if data else None
    except (FileNotFoundError, Invalid, jsontext.JSONDecodeError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("turn_id"), str):
        return None
    holder, process = _started(found.get("holder")), _started(found.get("process"))
    if holder is None or process is None:
        return None
    return TurnNote(found["turn_id"], holder, process, _question(found.get("question")))


def _question(value: Any) -> OpenQuestion | None:
    if not isinstance(value, dict):
        return None
    tool_name, at = value.get("tool_name"), value.get("at")
    return (
        OpenQuestion(tool_name, at) if isinstance(tool_name, str) and isinstance(at, str) else None
    )


def _started(value: Any) -> Started | None:
    if not isinstance(value, dict):
        return None
    pid, started = value.get("pid"), value.get("started")
    # 0 and below are no process but a group, or all of them; 1 is no program of ours.
    if type(pid) is int and type(started) is int and 1 < pid < 2**31 and started >= 0:
        return Started(pid, started)
    return None
