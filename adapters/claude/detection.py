"""Telling Claude's transcripts and recorded output from everything else, by content."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.formats.reading.salvage import salvage
from agentsdir.formats.reading.source import heads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BOM = b"\xef\xbb\xbf"
_MAX_ROWS = 64
_MAX_SALVAGED = 4
# Keys at the top of other programs' rows, and of our own stream events and blocks.
_FOREIGN = frozenset(
    {
        "projectHash",
        "payload",
        "conversationId",
        "blockId",
        "systemPayload",
        "usageMetadata",
        "toolCallResult",
    }
)
_STREAMED = frozenset(
    [
        "system",
        "assistant",
        "user",
        "result",
        "stream_event",
        "control_request",
        "control_response",
        "control_cancel_request",
        "keep_alive",
        "tool_progress",
        "tool_use_summary",
        "auth_status",
        "rate_limit_event",
        "prompt_suggestion",
        "conversation_reset",
        "transcript_mirror",
    ]
)
_MESSAGES = frozenset({"user", "assistant", "system", "attachment", "progress"})
# Rows that name a session and no message. Other programs' rows have a session's id, too.
_NOTES = frozenset(
    [
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "atis-latch",
        "content-replacement",
        "cost-state",
        "custom-title",
        "file-history-delta",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "queue-operation",
        "summary",
        "tag",
        "tools-used",
        "worktree-state",
    ]
)
# How the first line begins when it is so long that the head holds only a part of it.
_LONG_ROW = re.compile(
    rb'\s*\{"(?:parentUuid|logicalParentUuid|type|sessionId|uuid|isSidechain|message)":'
)
_TYPE = re.compile(rb'"type":\s*"(?:user|assistant|system|attachment|queue-operation|summary)"')
_NAMED = re.compile(rb'"(?:sessionId|session_id|parentUuid|leafUuid)":')


def detect(head: bytes) -> bool:
    """Tell whether `head`, the first bytes of a file, is Claude Code's."""
    rows = 0
    for row in head_rows(head):
        verdict = _judge(row)
        if verdict is not None:
            return verdict
        rows += 1
    first = head.lstrip(_BOM + b"\0 \r\n")
    if rows or b"\n" in first:
        return False
    return bool(
        _LONG_ROW.match(first)
        and _TYPE.search(first)
        and _NAMED.search(first)
        and b'"projectHash"' not in first
        and b'"conversationId"' not in first
    )


def first_rows(read: Callable[[int], bytes]) -> list[dict[str, Any]]:
    """Return the first rows of a file, as far as one of a conversation, be it ever so long.

    Args:
        read: returns as many of the first bytes as it is given, as `Source.head` does.
    """
    rows: list[dict[str, Any]] = []
    for head in heads(read):
        rows = list(head_rows(head))
        if head.count(b"\n") >= _MAX_ROWS:
            break
        if any("isSidechain" in row or "session_id" in row for row in rows):
            break
    return rows


def head_rows(head: bytes) -> Iterator[dict[str, Any]]:
    """Yield the first rows of a file's head, those on damaged lines included."""
    salvaged = 0
    for line in head.removeprefix(_BOM).split(b"\n")[:_MAX_ROWS]:
        try:
            values = [orjson.loads(line)]
        except orjson.JSONDecodeError:
            if not line.strip() or salvaged == _MAX_SALVAGED:
                continue
            salvaged += 1
            values = [value for value, _, _ in salvage(line).values]
        for value in values:
            if isinstance(value, dict):
                yield value


def _judge(row: dict[str, Any]) -> bool | None:
    """Say whether a row shows its file to be Claude's, or not; None if it shows nothing."""
    if not _FOREIGN.isdisjoint(row):
        return False
    message = row.get("message")
    if isinstance(message, dict) and "parts" in message:  # the turns of a Gemini fork
        return False
    kind = row.get("type")
    if not isinstance(kind, str):
        return None
    if "session_id" in row and "sessionId" not in row:
        if kind not in _STREAMED:
            return None
        # Other programs print a `result` line as well; the client's has a subtype.
        return True if kind != "result" else isinstance(row.get("subtype"), str)
    if isinstance(row.get("sessionId"), str) and kind in _NOTES:
        return True
    if isinstance(row.get("sessionId"), str) and kind in _MESSAGES:
        return True if "uuid" in row or "parentUuid" in row else None
    if kind in _MESSAGES:
        return True if "uuid" in row and "parentUuid" in row else None
    if kind == "summary":
        return True if "leafUuid" in row else None
    if kind == "file-history-snapshot":
        return True if "messageId" in row else None
    return None
