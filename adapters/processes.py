"""Programs that a provider started: whether they are alive, and ending all of them (decision D14).

A client's tool commands leave its process group and its session, and live on when it is killed. So
they are known by what they inherit, the marks in their environment, and by their parents. Without
a /proc nothing is found, and only the program itself is ended, by whoever started it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from agentsdir.adapters.contract import Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

GRACE = 5.0
"""Seconds that a program has between being asked to end and being ended."""
_PROC = Path("/proc")
_PAUSE = 0.02


def find(pid: int) -> Process | None:
    """Return a running process by its id."""
    status = _status(pid)
    return Process(pid, status[1]) if status else None


def _status(pid: int) -> tuple[int, int] | None:
    """Return a process's parent and start time; None for one that is over."""
    try:
        # The name of the program, in parentheses, may hold anything.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def is_alive(process: Process) -> bool:
    """Tell whether a process still runs, and is no later one of the same id."""
    return find(process.pid) == process


def _all() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal())


def marked(marks: Mapping[str, str]) -> Iterator[Process]:
    """Yield the processes that carry all of `marks` in their environment; none without marks."""
    wanted = {os.fsencode(f"{name}={value}") for name, value in marks.items()}
    for pid in _all() if wanted else ():
        with suppress(OSError):
            if wanted <= set((_PROC / str(pid) / "environ").read_bytes().split(b"\0")):
                found = find(pid)
                if found is not None and pid != os.getpid():
                    yield found


def _family(process: Process) -> Iterator[Process]:
    """Yield a running process and all that descend from it."""
    if not is_alive(process):
        return
    children: dict[int, list[Process]] = {}
    for pid in _all():
        status = _status(pid)
        if status:
            children.setdefault(status[0], []).append(Process(pid, status[1]))
    pending = [process]
    while pending:
        one = pending.pop()
        yield one
        pending += children.get(one.pid, [])


def end(process: Process | None, marks: Mapping[str, str], *, grace: float = GRACE) -> None:
    """End a process, its descendants, and whatever carries all of `marks`, until none is left.

    Args:
        grace: seconds between asking (SIGTERM) and ending (SIGKILL).
    """
    asked: set[Process] = set()
    over = time.monotonic() + grace
    # Descendants are looked for once more each time: one that dies hands its children on.
    known: set[Process] = set()
    while True:
        if process is not None:
            known |= set(_family(process))
        known |= {found for one in [*known] for found in _family(one)} | set(marked(marks))
        known = {one for one in known if is_alive(one)}
        if not known:
            return
        late = time.monotonic() >= over
        for one in known if late else known - asked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, signal.SIGKILL if late else signal.SIGTERM)
        asked |= known
        if late and time.monotonic() >= over + GRACE:
            return  # another user's, or beyond signals: nothing more can be done
        time.sleep(_PAUSE)
