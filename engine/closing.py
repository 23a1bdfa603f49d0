"""Closing agents for good (decision D15; SPEC.md, "Closing").

The agent first, so that nobody can be spawned below it any more; then, under the create lock, every
agent below it, from above to below. None needs its `.turn`: a running turn is asked to end, and
ends in its own time, in a session that stays closed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.interrupts import Asked, nudge, request_end
from agentsdir.engine.routing.lineage import descendants
from agentsdir.engine.steps import Step, take_step
from agentsdir.engine.world import World
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError, Busy

_PATIENCE = 10.0  # nobody holds the create lock for long


class Closed(NamedTuple):
    """An agent that is closed now. `turn` is the turn that was asked to end; `messages` were given
    up without one; `before` is whether it was closed already."""

    paths: AgentPaths
    before: bool
    turn: Asked | None
    messages: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return one line of `close --json`."""
        turn = self.turn
        return {
            "type": "closed",
            "agentId": self.paths.id,
            "before": self.before,
            "turn": None if turn is None else {"turnId": turn.turn_id, "ended": not turn.runs},
            "messages": self.messages,
        }
