"""Processes that carry the marks of a turn: finding them, and ending them (decision D14).

A number alone says nothing: the system gives it to others. So a process is known by its start time
too, and one that has to be ended by the variables that it was given.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from agentsdir.adapters.contract import Process
from agentsdir.formats.errors import ProviderError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PROC = Path("/proc")
_PATIENCE = 10.0  # seconds; who is not gone by then hangs in the kernel
_LOOK_EVERY = 0.01


def find(pid: int) -> Process | None:
    """Return a running process by its id; None where there is none, or no /proc to tell."""
    found = _stat(pid)
    return Process(pid, found[1]) if found else None


def _stat(pid: int) -> tuple[int, int] | None:
    """Return a running process's parent and start time."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else (int(fields[1]), int(fields[19]))


def is_alive(process: Process) -> bool:
    """Tell whether a process still runs, and is no later one of the same id."""
    return find(process.pid) == process


def marked(marks: Mapping[str, str]) -> Iterator[Process]:
    """Yield the processes that carry all of `marks` in their environment, but not this one."""
    wanted = {f"{name}={value}".encode() for name, value in marks.items()}
    for pid in _pids() if wanted else ():
        if pid != os.getpid() and _carries(pid, wanted) and (found := find(pid)):
            yield found


def _pids() -> list[int]:
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def _carries(pid: int, wanted: set[bytes]) -> bool:
    with suppress(OSError):  # another user's, or gone
        return wanted <= set((_PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    return False


def end(marks: Mapping[str, str], also: Sequence[Process] = ()) -> list[Process]:
    """End every process that carries all of `marks`, and all that descends from one.

    They are killed: they belong to a turn that nobody can bring to its end any more. Returns them
    when they are gone. Raises `ProviderError` (kind ``process-left``) for one that stays.

    Args:
        marks: variables and their values; nobody carries all of none.
        also: other processes to end, those of them that still run.
    """
    ended: dict[Process, None] = {}
    until = time.monotonic() + _PATIENCE
    while found := family([*marked(marks), *filter(is_alive, also)]):
        for process in found:
            ended[process] = None
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise ProviderError(
                f"the process {found[0].pid} of a turn whose holder died cannot be ended",
                hint="end it by hand, then try again",
                kind="process-left",
            )
        select.select((), (), (), _LOOK_EVERY)
    return list(ended)


def family(roots: Sequence[Process]) -> list[Process]:
    """Return some processes and all that descend from one of them, but not this one."""
    if not roots:
        return []
    stats = {pid: found for pid in _pids() if (found := _stat(pid))}
    known = {root.pid for root in roots}
    grown = True
    while grown:
        below = {pid for pid, (parent, _) in stats.items() if parent in known} - known
        known |= below
        grown = bool(below)
    return [Process(pid, stats[pid][1]) for pid in sorted(known - {os.getpid()}) if pid in stats]
