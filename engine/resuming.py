"""Taking a suspended session into use again (seed session-model; decision D11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.multiplexer import SessionMultiplexer
from agentsdir.engine.provider_sessions import find_provider, session_spec
from agentsdir.engine.syncing import place_missing
from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def resume(world: World, paths: AgentPaths, *, wait: float = 0) -> AgentState:
    """Take a suspended session into use again, in a slot; no process is started.

    Saved transcripts that the client has not are put where it finds them (decision D11).

    Args:
        wait: seconds to wait for a turn to end, and for a slot; negative waits for ever.

    Raises `SessionStateError` for an active or terminated session, `Busy`, `SlotsHeld`, and what
    `place_missing` raises; the session stays suspended then.
    """
    with hold_turn(paths, wait=wait) as held, world.disk.settled():
        state = close_crashed_turn(world, paths)
        check_transition(state.session.state, SessionState.ACTIVE, paths.id)
        _give_back(world, paths, state)
        mux = SessionMultiplexer(world)
        state = mux.acquire(paths, state, held, reason="resume", wait=wait).state
        mux.release(paths)
        return state


def _give_back(world: World, paths: AgentPaths, state: AgentState) -> None:
    try:
        _, provider = find_provider(state)
    except ProviderError:
        return  # who runs no turns needs no transcripts; `send` says why it runs none
    if provider.runs_program:
        world.check_trust()
        place_missing(provider, session_spec(world, paths, state, provider))
