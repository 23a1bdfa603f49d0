"""Answering calls at the end of a transcript that were never answered, as the client does.

2.1.332 appends such rows when it resumes; older clients leave the call out of what they send, and
the model is told nothing. So they are appended to what is placed, whichever client comes.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.control import encode
from agentsdir.formats.reading.rows import Tally, read_rows
from agentsdir.formats.times import from_text, native, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.reading.source import Source

# The client's own words.
TEXT = (
    "[Tool call interrupted: the session ended before this call's result was recorded, so its "
    "outcome is unknown. Check whether it took effect before relying on it or running it again.]"
)
_COPIED = ("userType", "entrypoint", "cwd", "sessionId", "version", "gitBranch", "slug")
_STEP = timedelta(milliseconds=1)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class _Calls:
    """The calls of the model's last message that are still open, and what a row needs to say."""

    def __init__(self) -> None:
        self.open: dict[str, dict[str, Any]] = {}
        self.prompt: Any = None
        self.last = _EARLIEST
        self._message: Any = None

    def take(self, row: dict[str, Any]) -> None:
        """Follow one row of the main thread."""
        self.last = max(self.last, _moment(row.get("timestamp")))
        message = row.get("message")
        if row.get("isSidechain") is True or not isinstance(message, dict):
            return
        content = message.get("content")
        parts = (
            [part for part in content if isinstance(part, dict)] if type(content) is list else []
        )
        if row.get("type") == "assistant":
            if message.get("id") != self._message or self._message is None:
                self.open.clear()  # the talk went on without an answer
            self._message = message.get("id")
            for part in parts:
                if part.get("type") == "tool_use" and isinstance(call := part.get("id"), str):
                    self.open[call] = row
        elif row.get("type") == "user":
            results = [part for part in parts if part.get("type") == "tool_result"]
            for part in results:
                self.open.pop(str(part.get("tool_use_id")), None)
            if not results and not row.get("isMeta"):
                self.prompt = row.get("promptId")
                self.open.clear()


def answers(source: Source, now: str) -> Iterator[bytes]:
    """Yield a line with an error result for each open call at the end of a main transcript.

    Args:
        now: an RFC 3339 time; the rows' times are later than it and all others, and increase.
    """
    calls = _Calls()
    with source.open() as stream:
        for row in read_rows(stream, source.name, Tally(), lambda _finding: None):
            calls.take(row.value)
    moment = max(_moment(now), calls.last)
    for call, asked in calls.open.items():
        moment += _STEP
        yield encode(_answer(call, asked, calls.prompt, moment))


def _answer(call: str, row: dict[str, Any], prompt: Any, moment: datetime) -> dict[str, Any]:
    """Return the client's row, with its keys in its order; what is not known is left out."""
    asked = row.get("uuid")
    result = {"type": "tool_result", "content": TEXT, "is_error": True, "tool_use_id": call}
    made = {
        "parentUuid": asked,
        "isSidechain": False,
        "promptId": prompt,
        "type": "user",
        "message": {"role": "user", "content": [result]},
        # The same row each time: what is placed twice is not answered twice.
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{asked}:{call}")),
        "timestamp": to_text(moment)[:-4] + "Z",  # milliseconds, as the client writes them
        "toolUseResult": TEXT,
        "toolDenialKind": "interrupted",
        "sourceToolAssistantUUID": asked,
        **{name: row[name] for name in _COPIED if name in row},
    }
    if not isinstance(prompt, str):
        del made["promptId"]
    return made


def _moment(text: Any) -> datetime:
    try:
        return from_text(str(native(text)))
    except (OverflowError, ValueError):
        return _EARLIEST
