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
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.adapters.contract import Process
from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_PROC = Path("/proc")
GRACE = 2.0
"""Seconds that a program has between being asked to end and being killed."""
_PATIENCE = 10.0  # seconds; who is not gone by then hangs in the kernel
_LOOK_EVERY = 0.01
_LOOKS = 2


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
    """Yield the processes that carry all of `marks` in their environment.

    Neither this one nor those that wait for it: a turn's own command may run agentsdir.
    """
    wanted = {os.fsencode(f"{name}={value}") for name, value in marks.items()}
    spared = _line_of(os.getpid())
    for pid in _pids() if wanted else ():
        if pid not in spared and _carries(pid, wanted) and (found := find(pid)):
            yield found


def started_with(options: Collection[str], value: str) -> Iterator[tuple[Process, dict[str, str]]]:
    """Yield this user's processes that were given an option with a value, and their environments.

    An environment that cannot be read is empty. Where there is no /proc, there are none.
    """
    wanted = os.fsencode(value)
    names = [os.fsencode(option) for option in options]
    for pid in _pids():
        with suppress(OSError):  # gone by now
            if (_PROC / str(pid)).stat().st_uid != os.geteuid():
                continue
            words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            given = any(name + b"=" + wanted in words for name in names) or any(
                word in names and after == wanted for word, after in pairwise(words)
            )
            if given and (found := find(pid)):
                yield found, _environment(pid)


def _environment(pid: int) -> dict[str, str]:
    try:
        data = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def _line_of(pid: int) -> set[int]:
    """Return a process and its ancestors, by number."""
    line: set[int] = set()
    while pid not in line:
        line.add(pid)
        found = _stat(pid)
        pid = found[0] if found else pid
    return line


def _pids() -> list[int]:
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def _carries(pid: int, wanted: set[bytes]) -> bool:
    with suppress(OSError):  # another user's, or gone
        return wanted <= set((_PROC / str(pid) / "environ").read_bytes().split(b"\0"))
    return False


def end(
    marks: Mapping[str, str], also: Sequence[Process] = (), *, grace: float = GRACE
) -> list[Process]:
    """End every process that carries all of `marks`, and all that descends from one.

    Each is asked, and killed if it does not listen. What descends from one that is over by then is
    still known. Returns them when they are gone.

    Args:
        marks: variables and their values; nobody carries all of none.
        also: other processes to end, those of them that still run.
        grace: seconds between asking and killing.

    Raises `ProviderError` (kind ``process-left``) for one that stays.
    """
    ended: dict[Process, None] = {}
    began = time.monotonic()
    unseen = 0
    # One look is not enough: a process may start another behind it, and be gone before it is met.
    while unseen < _LOOKS:
        found = family([*marked(marks), *also, *ended])
        unseen = 0 if found else unseen + 1
        late = time.monotonic() > began + grace
        for process in found if late else [one for one in found if one not in ended]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL if late else signal.SIGTERM)
        ended |= dict.fromkeys(found)
        if found and time.monotonic() > began + grace + _PATIENCE:
            raise ProviderError(
                f"the process {found[0].pid} of a turn that is over cannot be ended",
                hint="end it by hand, then try again",
                kind="process-left",
            )
        select.select((), (), (), _LOOK_EVERY)
    return list(ended)


def family(roots: Sequence[Process]) -> list[Process]:
    """Return those of some processes that still run, and all that descend from one of them.

    Neither this one nor those that wait for it.
    """
    if not roots:
        return []
    stats = {pid: found for pid in _pids() if (found := _stat(pid))}
    # The number of one that is over may be another's by now.
    known = {pid for pid, started in roots if stats.get(pid, (0, -1))[1] == started}
    grown = True
    while grown:
        below = {pid for pid, (parent, _) in stats.items() if parent in known} - known
        known |= below
        grown = bool(below)
    spared = _line_of(os.getpid())
    return [Process(pid, stats[pid][1]) for pid in sorted(known - spared) if pid in stats]
