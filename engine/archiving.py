"""Putting agents away, and bringing them back (SPEC.md, "Layout")."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.creation import check_unique, check_unused
from agentsdir.engine.identities import check_native
from agentsdir.engine.removal import hold_agent
from agentsdir.formats.directory import documents, locks
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.directory.publishing import move_agent
from agentsdir.formats.directory.slots import Slots
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


class Moved(NamedTuple):
    """An agent that was archived, or brought back, which `kind` says.

    `error` says why it could not be read, when it was moved as it is; then `state` is None.
    """

    kind: str
    agent_id: str
    state: str | None
    error: Invalid | None

    def as_json(self) -> dict[str, Any]:
        """Return one line of `archive --json`."""
        return {"type": self.kind, "agentId": self.agent_id, "state": self.state}


def archive_agent(world: World, paths: AgentPaths) -> Moved:
    """Suspend an agent's session if it is active, and move its folder to the archive.

    A damaged agent is moved as it is. Raises what `hold_agent` and `move_agent` raise, and
    `AgentsdirError` (kind ``already-exists``) when an agent of this id was archived before.
    """
    folder = world.layout.folder(archived=True)
    with hold_agent(world, paths):
        check_unused(world.layout, paths.id, archived=True)
        error = None
        state: AgentState | None = None
        try:
            state = _put_to_rest(world, paths)
        except Invalid as damage:
            error = damage
        Slots(world.layout).leave(paths.id)
        _move(world, paths, folder)
    return _moved("archived", paths, state, error)


def _put_to_rest(world: World, paths: AgentPaths) -> AgentState:
    # All of this is durable before the folder moves: afterwards nobody finds the files.
    with world.disk.settled():
        state = close_crashed_turn(world, paths)
        if state.session.state is SessionState.ACTIVE:
            with write_agent(paths, disk=world.disk, known=state) as writer:
                change = {"from": "active", "to": "suspended", "reason": "archive"}
                writer.append("session.state", change, world.now())
                state = writer.state
    return state


def unarchive_agent(world: World, paths: AgentPaths) -> Moved:
    """Bring an archived agent back among the others, with every byte it had.

    Raises what `hold_agent` and `move_agent` raise, and `AgentsdirError` (kind
    ``already-exists``) when another agent has its id, its routing key, its name or its native
    session by now.
    """
    layout = world.layout
    with hold_agent(world, paths):
        check_unused(layout, paths.id)
        error = None
        state: AgentState | None = None
        try:
            state = read_agent(paths).state
        except Invalid as damage:
            error = damage
        if state is not None and state.session.state is not SessionState.TERMINATED:
            check_unique(layout, state.descriptor, state.name or "", paths.id)
            check_native(layout, state.native["id"])
        _move(world, paths, layout.folder(archived=False))
    return _moved("unarchived", paths, state, error)


def _moved(kind: str, paths: AgentPaths, state: AgentState | None, error: Invalid | None) -> Moved:
    return Moved(kind, paths.id, state.session.state.value if state else None, error)


def _move(world: World, paths: AgentPaths, folder: Path) -> None:
    documents.make_folder(folder, world.disk)
    with locks.hold_undisturbed(paths.lock, what=f"the log of agent {paths.id}") as held:
        held.check()
        move_agent(paths, folder / paths.id, world.disk)
