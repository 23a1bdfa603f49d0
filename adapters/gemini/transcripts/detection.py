"""What a file is, told by its first bytes: a log, a document, recorded output, a last resort."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.gemini.transcripts.documents import CLOSE, OPEN, TOKEN
from agentsdir.adapters.gemini.transcripts.prompt_log import is_prompt
from agentsdir.adapters.gemini.transcripts.shapes import MODEL_TYPES, part_kind, parts_of
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

# The families, and None for what is not ours.
LOG, DOCUMENT, STREAM, REPORT = "log", "document", "stream", "report"
PROMPTS, CHECKPOINT, QWEN = "prompts", "checkpoint", "qwen"

_LOOKED_AT = 64
_COLON = re.compile(rb"\s*:\s*")
_TYPES = ("user", "gemini", "info", "warning", "error")
_SESSION = re.compile(rb'(?<!\\)"sessionId"\s*:')
_PROJECT = re.compile(rb'(?<!\\)"projectHash"\s*:')
# How a report begins that is longer than the head, or cut.
_REPORT = re.compile(
    rb'\{\s*"session_id"\s*:\s*"[^"]*"\s*,\s*"(?:response"\s*:\s*"|stats"\s*:\s*\{\s*"models")'
)
_OPERATION = re.compile(rb'\{\s*"\$(?:set"\s*:\s*\{\s*"messages"\s*:\s*\[|rewindTo"\s*:\s*")')
# A list, bare or the first value of an object under a checkpoint's name for it.
_LIST = re.compile(rb'(?:\[|\{\s*"(?:history|clientHistory)"\s*:\s*\[)\s*\{')
_LONG_TURN = re.compile(rb'\{\s*"role"\s*:\s*"(?:user|model)"\s*,\s*"parts"\s*:\s*\[')
# A header that breaks off, as one line; what its second key is, as far as it goes.
_CUT_HEADER = re.compile(rb'\{"sessionId":(?:"(?:[^"\n]*|[^"\n]*",?("[^\n\[]*)?))?')
# Lines of a recording that no other program is known to print; messages and errors are common.
_STREAM_FIELDS = {
    "init": ("session_id", "model"),
    "message": ("role", "content", "delta"),
    "tool_use": ("tool_name", "tool_id", "parameters"),
    "tool_result": ("tool_id", "status"),
    "result": ("status", "stats"),
}
# What only a model's message has.
_ANSWERS = ("thoughts", "tokens", "toolCalls", "model")


# Keys at the top of Qwen Code's rows that no other client has.
_QWEN = frozenset({"systemPayload", "usageMetadata", "toolCallResult"})


def family_of(head: bytes) -> str | None:
    """Return the family of a file that begins with `head`, or None where it is none of ours."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    first = text[:4096]
    if _is_report(text):
        return REPORT
    if found := _LIST.match(first):
        has_sent = any(key == b'"clientHistory"' for key, _ in top_keys(text))
        return _family_of_list(text[found.end() - 1 :], has_sent=has_sent)
    hints: set[str] = set()
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
        if isinstance(row, dict):
            hints |= _hints_of(row)
    if len(hints) > 1:
        return LOG
    # The first line may be longer than the head, or one of many of a document.
    if _has_header(text):
        newline = text.find(b"\n")
        line_is_whole = newline >= 0 and _is_json(text[:newline])
        return LOG if line_is_whole or _is_cut_header(text) else DOCUMENT
    is_cut = _OPERATION.match(first) and not _is_json(text.partition(b"\n")[0])
    return LOG if is_cut or _is_cut_header(text) else None


def _has_header(text: bytes) -> bool:
    """Tell whether an object begins here that names a session and a project itself."""
    first = text[:4096]
    if not (first.startswith(b"{") and _SESSION.search(first) and _PROJECT.search(first)):
        return False
    keys = {match[0] for match in top_keys(first)}
    return {b'"sessionId"', b'"projectHash"'} <= keys


def top_keys(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the keys of the object that `text` begins with, and where each one's value begins.

    What stands deeper, or in a string, is none of its keys. `text` may be cut anywhere.
    """
    depth, is_key = 0, False
    for match in TOKEN.finditer(text):
        token = match[0]
        if token in OPEN:
            depth += 1
            is_key = depth == 1
        elif token in CLOSE:
            depth -= 1
            is_key = depth == 1
            if depth <= 0:
                return
        elif depth == 1 and is_key and (colon := _COLON.match(text, match.end())):
            yield token, colon.end()
            is_key = False
        else:
            is_key = depth == 1


def _is_report(text: bytes) -> bool:
    """Tell whether this is the one object that ``--output-format json`` prints.

    Clients up to 0.11 say no session in it, so its statistics must be those of the client.
    """
    if not text.startswith(b"{"):
        return False
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return _REPORT.match(text[:4096]) is not None
    stats, error = value.get("stats"), value.get("error")
    if isinstance(stats, dict) and isinstance(stats.get("models"), dict):
        return isinstance(stats.get("tools"), dict) and ("response" in value or error is not None)
    named = isinstance(value.get("session_id"), str) and isinstance(error, dict)
    return named and isinstance(error.get("type"), str) and isinstance(error.get("message"), str)


def _hints_of(row: dict[str, Any]) -> set[str]:
    """Say what speaks for a log whose header is gone; one such row alone is a common shape."""
    change = row.get("$set")
    if isinstance(change, dict):
        touched = change.get("lastUpdated")
        return {"touch"} if isinstance(touched, str) and is_rfc3339(touched) else set()
    content = row.get("content")
    if row.get("type") == "user" and isinstance(content, list) and _is_message(row):
        known = any(part_kind(part) != "other" for part in parts_of(content))
        return {"prompt"} if known else set()
    return set()


def _is_cut_header(text: bytes) -> bool:
    """Tell whether this is all that a full disk left of a log: the beginning of its first line."""
    found = _CUT_HEADER.fullmatch(text)
    return found is not None and b'"projectHash":'.startswith((found[1] or b'"')[:14])


def _family_of_list(text: bytes, *, has_sent: bool) -> str | None:
    """Return the family of a file whose list begins with the object that `text` begins with."""
    try:
        entry, _ = json.JSONDecoder().raw_decode(text.decode(errors="replace"))
    except ValueError:  # longer than the head
        return CHECKPOINT if _LONG_TURN.match(text) else None
    if isinstance(entry.get("parts"), list) and entry.get("role") in ("user", "model"):
        return CHECKPOINT
    if is_prompt(entry):
        return PROMPTS if entry.get("type", "user") == "user" else None
    # What the client showed stands only beside what it sent the model.
    shown = isinstance(entry.get("text"), str) and entry.get("type") == "user"
    return CHECKPOINT if shown and type(entry.get("id")) is int and has_sent else None


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
    call = row.get("toolCall")  # in what its /export writes
    if row.get("type") == "tool_call" and isinstance(call, dict) and "toolCallId" in call:
        return True
    message = row.get("message")
    return not _QWEN.isdisjoint(row) or (isinstance(message, dict) and "parts" in message)


def _family_of_row(row: dict[str, Any]) -> str | None:
    if isinstance(row.get("sessionId"), str) and isinstance(row.get("projectHash"), str):
        return LOG
    if is_qwen(row):
        return QWEN
    if isinstance(row.get("$rewindTo"), str):
        return LOG
    change = row.get("$set")
    listed = change.get("messages") if isinstance(change, dict) else None
    if isinstance(listed, list) and any(isinstance(one, dict) and _is_told(one) for one in listed):
        return LOG
    kind, timestamp = row.get("type"), row.get("timestamp")
    if not isinstance(kind, str) or not isinstance(timestamp, str):
        return None
    if not is_rfc3339(timestamp):
        return None
    if "id" not in row:
        wanted = _STREAM_FIELDS.get(kind)
        return STREAM if wanted and all(name in row for name in wanted) else None
    known = kind == "gemini" or any(name in row for name in _ANSWERS)
    return LOG if known and kind in MODEL_TYPES and _is_message(row) else None


def _is_message(row: dict[str, Any]) -> bool:
    """Tell whether a row has the shape of a message in a log."""
    timestamp = row.get("timestamp")
    # Claude's rows have a uuid, and our own blocks name their conversation.
    foreign = "uuid" in row or "message" in row or "conversationId" in row or "sessionId" in row
    return not foreign and _is_told(row) and isinstance(timestamp, str) and is_rfc3339(timestamp)


def _is_told(row: dict[str, Any]) -> bool:
    known = row.get("type") in _TYPES or row.get("type") in MODEL_TYPES
    return known and isinstance(row.get("id"), str) and "content" in row
