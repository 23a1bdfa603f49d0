"""Tool calls to blocks: tool_use and tool_result, or one subagent block for a call that ran one."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.transcripts.outputs import is_cut
from agentsdir.adapters.gemini.transcripts.shapes import (
    CALL_STATUSES,
    answer_parts,
    as_text,
    bare_call_id,
    content_of,
    dict_of,
    entries_of,
    is_error_response,
    own_result,
    part_at,
    result_output,
    text_of,
)
from agentsdir.adapters.gemini.transcripts.spawns import asked_of
from agentsdir.formats import times

if TYPE_CHECKING:
    from agentsdir.adapters.gemini.transcripts.messages import Call
    from agentsdir.adapters.gemini.transcripts.outputs import Outputs
    from agentsdir.adapters.gemini.transcripts.shelf import Shelf

_FINAL = ("success", "error")
# A call's start stands only in ids that carry it: …_1795815018065_0, …-1757000000000-3fa….
_STARTED = re.compile(r"[_-](\d{13})[_-][0-9a-f]+$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_CALL = timedelta(days=1) // _MILLISECOND
_BODIES = ("originalContent", "newContent")
_BODY_LIMIT = 2048


class CallRecord:
    """One call with its richest result, as its rows are read back."""

    def __init__(self, call: Call, shelf: Shelf) -> None:
        field, at = call.spot
        message = shelf.message(call.place)
        if field == "toolCalls":
            entries = entries_of(message.get("toolCalls"))
            record = dict_of(entries[at]) if at < len(entries) else {}
        else:
            record = dict_of(part_at(content_of(message), at).get("functionCall"))
        self.id = call.id
        self.name = text_of(record.get("name"))
        self.args = record.get("args")
        self.record = record
        self.place = call.place
        self.answer_place = call.answer
        self.result: Any = _result(call, shelf) if call.answer else None
        # When the call was complete, where its record says so.
        self.ended = times.native(record.get("timestamp"))
        self.status = CALL_STATUSES.get(text_of(record.get("status")), "pending")
        if field != "toolCalls" and call.answer:
            self.status = "error" if is_error_response(self.result) else "success"

    @property
    def has_result(self) -> bool:
        """Whether a result is known, be it an empty one."""
        return self.answer_place is not None or self.status in _FINAL

    def use_fields(self) -> dict[str, Any]:
        """Return the fields of a tool_use block."""
        fields = {
            "toolName": self.name,
            "toolUseId": self.id,
            "input": self.args,
            "status": self.status,
        }
        record = self.record
        if isinstance(record.get("displayName"), str):
            fields["displayName"] = record["displayName"]
        if isinstance(record.get("description"), str):
            fields["description"] = record["description"]
        return fields

    def result_fields(self, outputs: Outputs, shelf: Shelf) -> dict[str, Any]:
        """Return the fields of a tool_result block."""
        output = result_output(self.result) if self.answer_place else None
        whole = None
        if is_cut(output):
            whole = outputs.whole(output, shelf.source(self.answer_place or self.place))
            if whole is not None and whole.output is not None:
                output = whole.output
        fields: dict[str, Any] = {
            "toolUseId": self.id,
            "output": output,
            "isError": self.status == "error" or is_error_response(self.result),
        }
        duration = self.duration()
        if duration is not None:
            fields["durationMs"] = duration
        if whole is not None:
            fields["overflow"] = whole.overflow
        fields.update(self.display_fields(output))
        return fields

    def display_fields(self, output: Any) -> dict[str, Any]:
        """Return the `display` field, where the client showed anything but the output."""
        display = self.record.get("resultDisplay")
        return (
            {} if display is None or display in ("", output) else {"display": elide_bodies(display)}
        )

    def duration(self) -> int | None:
        """Return how long the call took, in milliseconds, where its id says when it began."""
        started = _STARTED.search(self.id)
        if started is None or self.ended is None:
            return None
        try:
            took = (datetime.fromisoformat(self.ended) - _EPOCH) // _MILLISECOND - int(started[1])
        except ValueError:  # a leap second
            return None
        return took if 0 <= took < _LONGEST_CALL else None

    def task(self) -> str:
        """Return what a subagent was asked."""
        asked = asked_of(self.args)
        return as_text(self.args) if asked is None else asked

    def answer(self) -> str | None:
        """Return what a subagent gave back."""
        return as_text(result_output(self.result)) if self.answer_place else None


def _result(call: Call, shelf: Shelf) -> Any:
    assert call.answer is not None
    field, at = call.answer_spot
    message = shelf.message(call.answer)
    if field == "toolCalls":
        entries = entries_of(message.get("toolCalls"))
        record = dict_of(entries[at]) if at < len(entries) else {}
        return own_result(record.get("result"), bare_call_id(call.id, text_of(record.get("name"))))
    return answer_parts(content_of(message), at) or None


def elide_bodies(display: Any) -> Any:
    """Return a display without the whole-file bodies of a FileDiff; the diff itself stays."""
    if not isinstance(display, dict) or "fileDiff" not in display:
        return display
    return {
        key: f"[elided: {len(value)} characters; the transcript holds them]"
        if key in _BODIES and isinstance(value, str) and len(value) > _BODY_LIMIT
        else value
        for key, value in display.items()
    }
