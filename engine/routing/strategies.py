"""The two ways to name an agent by what it is: the seeds' fetch strategies.

See docs/behaviour.md, "Strategies".

The order is complete, so that two readers of one directory never choose differently: the last turn
decides, then the making, then the id. Reading, notices and restoring move neither time (D26).
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.engine.agents import each_agent
from agentsdir.formats import times
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import NoSuchAgent, UsageError

if TYPE_CHECKING:
    from agentsdir.engine.agents import Listed
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState

FOREGROUND = "most-recent-foreground"
STRATEGIES = {FOREGROUND: "user", "heartbeat": "heartbeat"}
"""Strategy → the kind of agent it chooses among. Only users are foreground."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Resolved(NamedTuple):
    """The agent that a strategy names, and those that could not be read and may be meant."""

    paths: AgentPaths
    unreadable: list[Listed]


def resolve(layout: Layout, strategy: str, *, but: str = "") -> Resolved:
    """Return the most recent live agent of the strategy's kind.

    Args:
        but: the id of an agent that is not meant, such as the one that asks.

    Raises `UsageError` for another strategy, `NoSuchAgent` when there is none.
    """
    kind = STRATEGIES.get(strategy)
    if kind is None:
        known = ", ".join(STRATEGIES)
        raise UsageError(f"there is no strategy {strategy!r}", hint=f"one of {known}")
    layout.check_version(writing=False)
    unreadable: list[Listed] = []
    found: list[tuple[tuple[float, float, str], AgentPaths]] = []
    for listed in each_agent(layout):
        if listed.reading is None:
            unreadable.append(listed)
        elif listed.paths.id != but and _is_meant(listed.reading.state, kind):
            found.append((age(listed.paths.id, listed.reading.state), listed.paths))
    if not found:
        raise NoSuchAgent(
            f"no live {kind} agent in {layout.root}",
            hint=f"`agentsdir new --type {kind}` makes one",
        )
    return Resolved(min(found, key=lambda one: one[0])[1], unreadable)


def _is_meant(state: AgentState, kind: str) -> bool:
    gone = state.ephemeral or state.session.state is SessionState.TERMINATED
    return not gone and state.descriptor.get("type") == kind


def age(agent_id: str, state: AgentState) -> tuple[float, float, str]:
    """Return what orders agents, the most recent first; without a turn, after all that had one."""
    return _before(state.last_activity), _before(state.session.created_at), agent_id


def _before(ts: str | None) -> float:
    """Return a time in microseconds, later ones first; infinity for none, and for no time."""
    try:
        return -((times.from_text(ts or "") - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, OverflowError):
        return math.inf
