"""Changing what an agent was made with (docs/behaviour.md, "Names, tags and settings")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.provider_sessions import find_provider, session_spec
from agentsdir.engine.syncing import catch_up
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import ProviderError, SessionStateError

if TYPE_CHECKING:
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def set_folder(world: World, paths: AgentPaths, folder: str, *, wait: float = 0) -> AgentState:
    """Give an agent another working directory; nothing where it has that one.

    What the client wrote under the old folder is taken over first: its store is named by the
    folder, and the next turn looks under the new one.

    Args:
        folder: the real path of a folder that exists.
        wait: seconds to wait for a turn to end; negative waits for ever.

    Raises `SessionStateError` (kind ``closed``) for a closed agent, `Busy` while a turn runs,
    and, for a provider that runs a program, what `check_trust` and `catch_up` raise.
    """
    with hold_turn(paths, wait=wait), world.disk.settled():
        state = close_crashed_turn(world, paths)
        if state.session.state is SessionState.TERMINATED:
            raise SessionStateError(f"agent {paths.id} is closed", kind="closed")
        if state.cwd == folder:
            return state
        if state.transcripts:
            state = _caught_up(world, paths, state)
        with write_agent(paths, disk=world.disk, known=state) as writer:
            writer.append("agent.set", {"values": {"cwd": folder}}, world.now())
            return writer.state


def _caught_up(world: World, paths: AgentPaths, state: AgentState) -> AgentState:
    try:
        architecture, provider = find_provider(state)
    except ProviderError:
        return state  # there is no client whose store could have more
    if not provider.runs_program:
        return state
    world.check_trust()
    spec = session_spec(world, paths, state, provider)
    return catch_up(world, paths, state, architecture, provider, spec)[0]
