"""What a log may still hold once its session is terminated.

See decision D15; docs/behaviour.md, "Closing".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.errors import SessionStateError

if TYPE_CHECKING:
    from agentsdir.formats.directory.states import AgentState

# What is settled, kept or said afterwards; it changes nothing about the end.
ALWAYS = frozenset(
    {
        "message.delivered",
        "message.resent",
        "message.unsent",
        "outgoing.delivered",
        "restore",
        "session.state",  # the state machine has its own words for it
        "transcript.synced",
        "workspace.captured",
    }
)
# What a turn writes that was running when its session was closed, until it is over.
UNWINDING = frozenset(
    {"turn.complete", "turn.error", "turn.aborted", "block", "native.changed", "hook.failed"}
)


def breach(state: AgentState, event: str, data: dict[str, Any]) -> str | None:
    """Return what is wrong with one more event in the log of an agent, if it is closed."""
    if state.session.state is not SessionState.TERMINATED or event in ALWAYS:
        return None
    turn = state.open_turn
    if turn is None:
        return f"{event} after the session was terminated"
    if event in UNWINDING and data.get("turn_id", turn["turnId"]) == turn["turnId"]:
        return None
    return f"{event} after the session was terminated, which is not of the turn that was open"


def check_event(state: AgentState, event: str, data: dict[str, Any]) -> None:
    """Raise `SessionStateError` for an event that a writer must not append any more.

    An agent can be closed whatever else is done with it, so this is asked under `.lock`: what was
    true when the work began need not be true now.
    """
    if event == "session.state":
        check_transition(state.session.state, SessionState(data["to"]), state.agent_id)
    elif breach(state, event, data):
        raise SessionStateError(
            f"agent {state.agent_id} is closed: it takes no {event} any more", kind="closed"
        )
