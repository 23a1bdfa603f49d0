"""How a message ended whose turn another process ran: as the log says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.endings import TurnResult
from agentsdir.engine.replaying import recorded_event
from agentsdir.formats.directory.log import read_records
from agentsdir.formats.errors import ProviderError, SessionStateError, TurnTimeout

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.reading.stream import StreamEvent


def recorded_result(
    paths: AgentPaths, message_id: str, on_event: Callable[[StreamEvent], None]
) -> TurnResult:
    """Return how a message ended, from the log: another process ran it.

    `on_event` is called with what `replay` makes of its turn. Raises `ProviderError` when the turn
    failed, and `SessionStateError` when the agent was closed before it.
    """
    turn_id: str | None = None
    for record in read_records(paths.log):
        data = record.data
        if record.event == "turn.start" and message_id in data.get("message_ids", ()):
            turn_id = data["turn_id"]
        elif record.event == "message.delivered" and turn_id is None:
            if data.get("message_id") == message_id:
                raise SessionStateError(
                    "the agent was closed before the message was looked at", kind="closed"
                )
        elif turn_id is None or data.get("turn_id") != turn_id:
            continue
        elif record.event == "turn.error":
            raise ProviderError(data["message"], kind=data["kind"])
        elif record.event == "turn.aborted" and data["reason"] == "timeout":
            raise TurnTimeout("the turn was ended because its time was over")
        elif record.event == "turn.aborted":
            raise ProviderError(f"the turn was aborted: {data['reason']}", kind="turn-aborted")
        elif event := recorded_event(record):
            on_event(event)
        if record.event == "turn.complete" and data.get("turn_id") == turn_id:
            said, stop, usage = data["response"], data["stop_reason"], data["usage"]
            cost = data.get("cost_usd")
            return TurnResult(message_id, turn_id, "completed", said, stop, usage, cost=cost)
    raise ProviderError(f"the log does not say how message {message_id} ended", kind="turn-unknown")
