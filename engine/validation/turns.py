"""Whether messages and turns follow each other as they must (SPEC.md, "Sessions and turns")."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.formats.directory.records import Record

_ENDS = ("turn.complete", "turn.error", "turn.aborted")


class TurnCheck:
    """Follows one log: one message, one turn; started once, ended once, delivered once."""

    def __init__(self) -> None:
        self._waiting: set[str] = set()
        self._turn: str | None = None
        self._ended = False
        self._undelivered: set[str] = set()

    def breach(self, record: Record) -> tuple[str, str] | None:
        """Return what is wrong with a record after those before it, and a JSON pointer to it."""
        data, event = record.data, record.event
        if event == "message.enqueued":
            self._waiting.add(str(data.get("message_id")))
        elif event == "turn.start":
            return self._start(data)
        elif event in _ENDS:
            return self._end(str(data.get("turn_id")))
        elif event == "message.delivered":
            return self._deliver(str(data.get("message_id")))
        elif event == "block" and data.get("turn_id") not in (None, self._turn):
            return "no such turn is open", "/data/turn_id"
        return None

    def _start(self, data: dict[str, Any]) -> tuple[str, str] | None:
        before, self._turn, self._ended = self._turn, str(data.get("turn_id")), False
        named = data.get("message_ids")
        messages = {str(message) for message in named} if isinstance(named, list) else set()
        strange = messages - self._waiting
        self._waiting -= messages
        self._undelivered = messages
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

    def _deliver(self, message: str) -> tuple[str, str] | None:
        if message in self._waiting:  # given up before any turn took it
            self._waiting.discard(message)
            return None
        if message not in self._undelivered or not self._ended:
            return f"message {message} is not at its turn's end", "/data/message_id"
        self._undelivered.discard(message)
        if not self._undelivered:
            self._turn = None
        return None
