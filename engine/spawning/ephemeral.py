"""Ephemeral agents: once their work is done and told, they are removed (decision D19)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.removal import remove_agent
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import Busy, Invalid, NoSuchAgent

if TYPE_CHECKING:
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def remove_spent(world: World, paths: AgentPaths) -> bool:
    """Remove an agent if it is ephemeral and has nothing left to do; tell whether it is gone.

    One that somebody holds is left to them, and to `restore`. Raises what `remove_agent` raises.
    """
    try:
        # Before any lock is asked for: nearly every agent stays.
        return is_spent(read_agent(paths).state) and remove_agent(world, paths, only_if=is_spent)
    except (Busy, Invalid, NoSuchAgent):
        return False


def is_spent(state: AgentState) -> bool:
    """Tell whether an agent is ephemeral and done: its last message is settled, none waits."""
    return state.open_turn is None and is_spent_but_for_a_turn(state)


def is_spent_but_for_a_turn(state: AgentState) -> bool:
    """Tell the same of an agent whose open turn is about to be closed."""
    has_worked = state.counters["turns"] > 0 or state.session.state is SessionState.TERMINATED
    return state.ephemeral and has_worked and not (state.pending or state.children or state.unsent)
