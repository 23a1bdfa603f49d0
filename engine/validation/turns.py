"""Whether messages and turns follow each other as they must.

See docs/behaviour.md, "Sessions and turns".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsdir.formats.directory.records import Record

_ENDS = ("turn.complete", "turn.error", "turn.aborted")


# What a turn does before its end.
_WITHIN = (
    "abort.requested",
    "abort.cleared",
    "message.sent",
    "provider.fallback",
    "spawn.requested",
)


class TurnCheck:
    """Follows one log: one message, one turn; started once, ended once, delivered once."""

    def __init__(self) -> None:
        self._messages: set[str] = set()
        self._waiting: set[str] = set()
        self._turn: str | None = None
        self._ended = False
        self._asked = False
        self._closed = False
        self._undelivered: set[str] = set()

    def breach(self, record: Record) -> tuple[str, str] | None:
        """Return what is wrong with a record after those before it, and a JSON pointer to it."""
        data, event = record.data, record.event
        if event == "session.state":
            self._closed = data.get("to") == "terminated"
        elif event == "message.enqueued":
            return self._enqueue(str(data.get("message_id")))
        elif event == "turn.start":
            return self._start(data)
        elif event in _ENDS:
            return self._end(str(data.get("turn_id")))
        elif event in _WITHIN:
            return self._go_on(event, str(data.get("turn_id")))
        elif event == "message.delivered":
            return self._deliver(str(data.get("message_id")), data.get("outcome"))
        elif event == "block" and data.get("turn_id") not in (None, self._turn):
            return "no such turn is open", "/data/turn_id"
        return None

    def _enqueue(self, message: str) -> tuple[str, str] | None:
        known = message in self._messages
        self._messages.add(message)
        self._waiting.add(message)
        return (f"message {message} is there already", "/data/message_id") if known else None

    def _start(self, data: dict[str, Any]) -> tuple[str, str] | None:
        before, self._turn, self._ended = self._turn, str(data.get("turn_id")), False
        named = data.get("message_ids")
        messages = {str(message) for message in named} if isinstance(named, list) else set()
        strange = messages - self._waiting
        self._waiting -= messages
        self._undelivered, self._asked = messages, False
        if before is not None:
            return f"turn {before} is not over", "/data/turn_id"
        if strange:
            return f"message {min(strange)} is not waiting", "/data/message_ids"
        return None

    def _end(self, turn: str) -> tuple[str, str] | None:
        if turn != self._turn or self._ended:
            return f"turn {turn} is not open", "/data/turn_id"
        self._ended = True
        if not self._undelivered:
            self._turn = None
        return None

    def _go_on(self, event: str, turn: str) -> tuple[str, str] | None:
        if turn != self._turn or self._ended:
            return f"turn {turn} does not run", "/data/turn_id"
        if event == "abort.cleared" and not self._asked:
            return f"turn {turn} was not asked to end", "/data/turn_id"
        if event.startswith("abort."):
            self._asked = event == "abort.requested"
        return None

    def _deliver(self, message: str, outcome: Any) -> tuple[str, str] | None:
        if message in self._waiting:  # given up before any turn took it
            self._waiting.discard(message)
            if not self._closed:
                return f"no turn has taken message {message}", "/data/message_id"
            reason = f"no turn has taken message {message}, and it is {outcome}"
            return None if outcome == "aborted" else (reason, "/data/outcome")
        if message not in self._undelivered or not self._ended:
            return f"message {message} is not at its turn's end", "/data/message_id"
        self._undelivered.discard(message)
        if not self._undelivered:
            self._turn = None
        return None
