"""What a file is, told by its first bytes: a log, a document, recorded output, a last resort."""

from __future__ import annotations

import json
import re

import orjson

from agentsdir.formats import times

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The families, and None for what is not ours.
LOG, DOCUMENT, STREAM, REPORT = "log", "document", "stream", "report"
PROMPTS, CHECKPOINT, QWEN = "prompts", "checkpoint", "qwen"

_LOOKED_AT = 64
_TYPES = ("user", "gemini", "info", "warning", "error")
_SESSION = re.compile(rb'(?<!\\)"sessionId"\s*:')
_PROJECT = re.compile(rb'(?<!\\)"projectHash"\s*:')
_REPORT = re.compile(rb'\{\s*"session_id"\s*:\s*"[^"]*"\s*,\s*"(?:response|stats|error)"\s*:')
_OPERATION = re.compile(rb'\{\s*"\$(?:set"\s*:\s*\{|rewindTo"\s*:\s*")')
# A list, bare or the first value of an object under a checkpoint's name for it.
_LIST = re.compile(rb'(?:\[|\{\s*"(?:history|clientHistory)"\s*:\s*\[)\s*\{')
_LONG_TURN = re.compile(rb'\{\s*"role"\s*:\s*"(?:user|model)"\s*,\s*"parts"\s*:\s*\[')
# A header that breaks off, as one line; what its second key is, as far as it goes.
_CUT_HEADER = re.compile(rb'\{"sessionId":(?:"(?:[^"\n]*|[^"\n]*",?("[^\n\[]*)?))?')
_STREAM_FIELDS = {
    "init": ("session_id", "model"),
    "message": ("role", "content"),
    "tool_use": ("tool_name", "tool_id", "parameters"),
    "tool_result": ("tool_id", "status"),
    "error": ("severity", "message"),
    "result": ("status", "stats"),
}


# Keys at the top of Qwen Code's rows that no other client has.
_QWEN = frozenset({"systemPayload", "usageMetadata", "toolCallResult"})


def family_of(head: bytes) -> str | None:
    """Return the family of a file that begins with `head`, or None where it is none of ours."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first = text[:4096]
    if _REPORT.match(first):
        return REPORT
    if found := _LIST.match(first):
        return _family_of_list(text[found.end() - 1 :])
    for line in text.split(b"\n", _LOOKED_AT)[:_LOOKED_AT]:
        if not line.startswith(b"{") or line.rstrip() == b"{":
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        family = _family_of_row(row) if isinstance(row, dict) else None
        if family is not None:
            return _one_line_document(row, text) or family
    # The first line may be longer than the head, or one of many of a document.
    if first.startswith(b"{") and _SESSION.search(first) and _PROJECT.search(first):
        newline = text.find(b"\n")
        line_is_whole = newline >= 0 and _is_json(text[:newline])
        return LOG if line_is_whole or _is_cut_header(text) else DOCUMENT
    return LOG if _OPERATION.match(first) or _is_cut_header(text) else None


def _is_cut_header(text: bytes) -> bool:
    """Tell whether this is all that a full disk left of a log: the beginning of its first line."""
    found = _CUT_HEADER.fullmatch(text)
    return found is not None and b'"projectHash":'.startswith((found[1] or b'"')[:14])


def _family_of_list(text: bytes) -> str | None:
    """Return the family of a file whose list begins with the object that `text` begins with."""
    try:
        entry, _ = json.JSONDecoder().raw_decode(text.decode(errors="replace"))
    except ValueError:  # longer than the head
        return CHECKPOINT if _LONG_TURN.match(text) else None
    if isinstance(entry.get("parts"), list) and entry.get("role") in ("user", "model"):
        return CHECKPOINT
    if isinstance(entry.get("sessionId"), str) and type(entry.get("messageId")) is int:
        return PROMPTS if isinstance(entry.get("message"), str) else None
    shown = isinstance(entry.get("text"), str) and entry.get("type") == "user"
    return CHECKPOINT if shown and type(entry.get("id")) is int else None


def _one_line_document(row: dict[str, Any], text: bytes) -> str | None:
    """A session in one line is a document if nothing follows, and an old record in a log if so."""
    if isinstance(row.get("messages"), list) and "sessionId" in row:
        newline = text.find(b"\n")
        if newline < 0 or not text[newline:].strip():
            return DOCUMENT
    return None


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def is_qwen(row: dict[str, Any]) -> bool:
    """Tell whether a row is Qwen Code's: a row as Claude's, around a turn as Gemini's."""
    if not isinstance(row.get("uuid"), str) or not isinstance(row.get("sessionId"), str):
        return False
    message = row.get("message")
    return not _QWEN.isdisjoint(row) or (isinstance(message, dict) and "parts" in message)


def _family_of_row(row: dict[str, Any]) -> str | None:
    if isinstance(row.get("sessionId"), str) and isinstance(row.get("projectHash"), str):
        return LOG
    if is_qwen(row):
        return QWEN
    if isinstance(row.get("$set"), dict) or isinstance(row.get("$rewindTo"), str):
        return LOG
    kind, timestamp = row.get("type"), row.get("timestamp")
    if not isinstance(kind, str) or not isinstance(timestamp, str):
        return None
    if not times.is_rfc3339(timestamp):
        return None
    if "id" not in row:
        wanted = _STREAM_FIELDS.get(kind)
        return STREAM if wanted and all(name in row for name in wanted) else None
    # Claude's rows have a uuid, and our own blocks name their conversation.
    foreign = "uuid" in row or "message" in row or "conversationId" in row or "sessionId" in row
    if kind in _TYPES and isinstance(row["id"], str) and "content" in row and not foreign:
        return LOG
    return None
