"""`assistant` rows: one block for each content part of a model message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.emit import HIDDEN, PARSED
from agentsdir.adapters.claude.shapes import SYNTHETIC, all_text, identifier, mapping, parts, text
from agentsdir.adapters.claude.subagents import TOOLS
from agentsdir.adapters.claude.tree import ANSWER, FILLER
from agentsdir.formats.reading.sink import DROPPED

if TYPE_CHECKING:
    from agentsdir.adapters.claude.emit import Place
    from agentsdir.adapters.claude.reading import Reading

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FILLING = "No response requested."
CALLS = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
_COMMAND_FIELDS = ("contextUsage", "commandRun")
_ERROR_FIELDS = ("error", "apiError", "apiErrorStatus", "apiErrorType", "errorDetails")


def read_assistant(reading: Reading, value: dict[str, Any], place: Place) -> int:
    """Turn an `assistant` row into blocks; return what became of it."""
    message = value.get("message")
    if type(message) is not dict:
        message = {}
    content = message.get("content")
    if message.get("model") == SYNTHETIC or value.get("isApiErrorMessage") is True:
        return _synthetic(reading, value, place, content)
    reading.mark = ANSWER
    common: dict[str, Any] = {}
    message_id = message.get("id")
    if isinstance(message_id, str) and message_id:
        common["messageId"] = message_id
    last = DROPPED
    pieces = content if type(content) is list else parts(content)
    several = len(pieces) > 1 and _UUID.fullmatch(place.base)
    for index, part in enumerate(pieces):
        if several:
            # As on stdout, where each part is a line of its own.
            named = place._replace(base=f"{place.base[:24]}{index:012x}")
            handle = _part(reading, value, named, 0, part, message, common)
        else:
            handle = _part(reading, value, place, index, part, message, common)
        if handle != DROPPED:
            last = handle
    hidden = last == DROPPED
    if hidden:
        if not pieces:
            reading.reason = "empty"
            reading.emitter.log(place, 0, value)
        last = reading.emitter.first  # a hidden one, if those are wanted: tokens stand somewhere
    reading.tokens.note(place.conversation, value, message, last, visible=not hidden)
    return HIDDEN if hidden else PARSED


def _part(
    reading: Reading,
    value: dict[str, Any],
    place: Place,
    index: int,
    part: Any,
    message: dict[str, Any],
    common: dict[str, Any],
) -> int:
    """Add the block of one content part; return its handle, `DROPPED` for a hidden one."""
    emit = reading.emitter.emit
    if type(part) is str:
        part = {"type": "text", "text": part}
    if type(part) is dict:
        kind = part.get("type")
        if kind == "text":
            fields = {"content": text(part.get("text")), **common}
            model = message.get("model")
            if isinstance(model, str):
                fields["model"] = model
            return emit("assistant_text", place, index, fields)
        if kind == "thinking":
            fields = {"content": text(part.get("thinking")), **common}
            signature = part.get("signature")
            if isinstance(signature, str):
                fields["signature"] = signature
            return emit("thinking", place, index, fields)
        if kind == "redacted_thinking":
            data = text(part.get("data"))
            fields = {"content": "", **common, "signature": data, "redacted": True}
            return emit("thinking", place, index, fields)
        if isinstance(kind, str) and kind in CALLS:
            return _call(reading, place, index, part, common)
        if isinstance(kind, str) and kind.endswith("_tool_result"):
            return _server_result(reading, place, index, part, common)
    reading.hide_part(place, index, value, part)
    return DROPPED


def _call(
    reading: Reading, place: Place, index: int, part: dict[str, Any], common: dict[str, Any]
) -> int:
    tool_use_id = text(part.get("id"))
    name = text(part.get("name"))
    given = part.get("input")
    if name in TOOLS and part["type"] == "tool_use":
        call = reading.subagents.opened(place, tool_use_id, mapping(given))
        fields = {"input": call.prompt, "toolUseId": tool_use_id, **common}
        if call.name:
            fields["name"] = call.name
        if call.description:
            fields["description"] = call.description
        call.handle = reading.emitter.emit("subagent", place, index, fields)
        return call.handle
    fields = {
        "toolName": name,
        "toolUseId": tool_use_id,
        "input": {} if given is None else given,
        **common,
    }
    handle = reading.emitter.emit("tool_use", place, index, fields)
    reading.calls.opened(place.conversation, tool_use_id, handle)
    return handle


def _server_result(
    reading: Reading, place: Place, index: int, part: dict[str, Any], common: dict[str, Any]
) -> int:
    """Add the result of a tool that ran at the model's side: it stands among the parts."""
    output = part.get("content")
    error = part.get("is_error") is True or text(mapping(output).get("type")).endswith("_error")
    tool_use_id = text(part.get("tool_use_id"))
    fields = {
        "toolUseId": tool_use_id,
        "output": "" if output is None else output,
        "isError": error,
        **common,
    }
    handle = reading.emitter.emit("tool_result", place, index, fields)
    reading.calls.answered(tool_use_id, "error" if error else "success", place)
    return handle


def _synthetic(reading: Reading, value: dict[str, Any], place: Place, content: Any) -> int:
    """Show what the client wrote in the model's place: an error, a notice, what an Esc cut off."""
    words = all_text(content)
    if value.get("isApiErrorMessage") is not True and value.get("error") is None:
        if words == _FILLING or not words:
            reading.mark = FILLER
            reading.reason = "filler"
            return reading.emitter.log(place, 0, value)
        if value.get("isApiErrorMessage") is False and "parentUuid" in value:
            # What the model had said before an Esc; the message is that of the rows above.
            reading.mark = ANSWER
            reading.emitter.emit("assistant_text", place, 0, {"content": words})
            return PARSED
        event = "client_notice"
        if "local_command_source" in value:  # stdout's way to show what a command printed
            event = "local_command_output"
        details = {name: value[name] for name in _COMMAND_FIELDS if name in value}
        return reading.emitter.say(place, "status", words, {"event": event, **details})
    reading.tokens.failed()
    metadata: dict[str, Any] = {"event": "api_error"}
    for name in _ERROR_FIELDS:
        if value.get(name) is not None:
            metadata[name] = value[name]
    request = identifier(value.get("requestId"))
    if request:
        metadata["requestId"] = request
    return reading.emitter.say(place, "error", words or "API error", metadata)
