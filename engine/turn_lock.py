"""Holding `.turn`, once what a dead holder left running is ended (decision D14)."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.formats.store import locks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.locks import Started, TurnNote


@contextmanager
def hold_turn(
    paths: AgentPaths, *, wait: float = 0, hint: str = "--wait SECONDS waits for it"
) -> Iterator[locks.Held]:
    """Hold an agent's `.turn` (arguments and errors of `locks.hold`)."""
    with locks.hold(paths.turn, wait=wait, what=f"agent {paths.id}", hint=hint) as held:
        end_leftovers(paths, held)
        yield held


def end_leftovers(paths: AgentPaths, held: locks.Held) -> None:
    """End what a dead holder of `.turn` left running, and forget it."""
    if not os.fstat(held.descriptor).st_size:
        return
    from agentsdir.formats.store.locks import clear_note, read_note

    if note := read_note(paths):
        end_leftovers(paths, note)
        clear_note(held)


def turn_marks(paths: AgentPaths, turn_id: str) -> dict[str, str]:
    """Return the variables that every process of a turn carries, and no other process."""
    return {
        "AGENTSDIR_ROOT": str(paths.folder.parent.parent.resolve()),
        "AGENTSDIR_AGENT": paths.id,
        "AGENTSDIR_TURN": turn_id,
    }


def has_leftovers(paths: AgentPaths) -> bool:
    """Tell whether something still runs of the turn that `.turn` names; none is at work now."""
    from agentsdir.formats.store.locks import read_note

    note = read_note(paths)
    if note is None:
        return False
    from agentsdir.adapters import processes

    return any(processes.marked(turn_marks(paths, note.turn_id)))


def end_leftovers(paths: AgentPaths, note: TurnNote) -> None:
    """End what carries the marks of the turn that a note names.

    The note may be old, or anybody's: a process is ended because it carries the marks, never
    because the note has its number.
    """
    from agentsdir.adapters import processes

    processes.end(turn_marks(paths, note.turn_id))


def this_process() -> Started:
    """Return the process that runs this."""
    from agentsdir.adapters import processes
    from agentsdir.formats.store.locks import Started

    found = processes.find(os.getpid())
    return Started(*found) if found else Started(os.getpid(), 0)
