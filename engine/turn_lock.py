"""The lock `.turn`: held while a turn runs, once a dead holder's processes are ended (D14)."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.adapters import processes, registry
from agentsdir.adapters.protocol import program_of
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.locks import Started, clear_note, read_note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.store.layout import AgentPaths


@contextmanager
def hold_turn(
    paths: AgentPaths, *, wait: float = 0, hint: str = "--wait SECONDS waits for it"
) -> Iterator[locks.Held]:
    """Hold an agent's `.turn` (arguments and errors of `locks.hold`)."""

    def more() -> str:
        said = [_use(paths)]
        if wait < 0:
            said.append("`--wait SECONDS` ends the wait, and `send --no-wait` queues and returns")
        return "; ".join(filter(None, said))

    what = f"agent {paths.id}"
    with locks.hold(paths.turn, wait=wait, what=what, hint=hint, more=more) as held:
        end_leftovers(paths, held)
        yield held


def _use(paths: AgentPaths) -> str:
    """Return what the process that holds `.turn` does, with the agent's name."""
    try:
        state = read_agent(paths).state
        provider = registry.get(state.session.provider_name).provider
    except (AgentsdirError, OSError, MemoryError):
        return ""
    name = state.name or "it"
    if state.open_turn is not None and not state.open_turn["ended"]:
        note = read_note(paths)
        asks = note is not None and note.question is not None
        return f"a turn of {name} runs" + (", and waits for permission" if asks else "")
    if provider is not None and program_of(provider) is not None:
        return f"{name} is open in its client (`agentsdir open`), or waits for a slot"
    return ""


def end_leftovers(paths: AgentPaths, held: locks.Held) -> None:
    """End the processes that a dead holder of `.turn` left running, and clear its note.

    The note may be old, or written by another program. A process is ended because it carries the
    marks of the turn, never because the note has its process id.
    """
    if not os.fstat(held.descriptor).st_size:
        return
    if note := read_note(paths):
        processes.end(turn_marks(paths, note.turn_id))
        clear_note(held)


def has_leftovers(paths: AgentPaths) -> bool:
    """Return whether a process of the turn that `.turn` names still runs, with no holder."""
    note = read_note(paths)
    return note is not None and any(processes.marked(turn_marks(paths, note.turn_id)))


def turn_marks(paths: AgentPaths, turn_id: str) -> dict[str, str]:
    """Return the environment variables that all processes of a turn carry, and no other process."""
    return {
        "AGENTSDIR_ROOT": str(paths.folder.parent.parent.resolve()),
        "AGENTSDIR_AGENT": paths.id,
        "AGENTSDIR_TURN": turn_id,
    }


def this_process() -> Started:
    """Return the id and the start time of this process."""
    found = processes.find(os.getpid())
    return Started(*found) if found else Started(os.getpid(), 0)
