"""What the holder of `.turn` writes into it: whose turn, and which processes (decision D14).

A note for whoever comes next, who may find the holder dead. It is written in place and never
fsynced: no process outlives the machine. Bytes that make no sense are no note.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import jsontext
from agentsdir.formats.directory.layout import read_bytes
from agentsdir.formats.errors import Invalid, NotRecorded

if TYPE_CHECKING:
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.locks import Held

_MOST = 4096


class Started(NamedTuple):
    """A process: its id, and its start time in clock ticks since boot, so that it is no other."""

    pid: int
    started: int


class TurnNote(NamedTuple):
    """A turn, who runs it, and the program it runs."""

    turn_id: str
    holder: Started
    process: Started


def write_note(held: Held, note: TurnNote) -> None:
    """Write the note into the lock file that this process holds. Raises `NotRecorded`, `Busy`."""
    held.check()
    document = {
        "turn_id": note.turn_id,
        "holder": note.holder._asdict(),
        "process": note.process._asdict(),
    }
    _write(held, jsontext.encode(document) + b"\n")


def clear_note(held: Held) -> None:
    """Leave the lock file empty. Raises `NotRecorded`."""
    _write(held, b"")


def _write(held: Held, data: bytes) -> None:
    try:
        os.ftruncate(held.descriptor, 0)
        if data and os.pwrite(held.descriptor, data, 0) != len(data):
            raise NotRecorded(f"cannot write {held.path}: the disk is full")
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
    return TurnNote(found["turn_id"], holder, process)


def _started(value: Any) -> Started | None:
    if not isinstance(value, dict):
        return None
    pid, started = value.get("pid"), value.get("started")
    # 0 and below are no process but a group, or all of them; 1 is no program of ours.
    if type(pid) is int and type(started) is int and 1 < pid < 2**31 and started >= 0:
        return Started(pid, started)
    return None
