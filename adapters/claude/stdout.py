"""Lines of `stream-json` output, which spell the transcript's keys in another way.

Partial messages and control lines are logged, hidden.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude.shapes import agent_id, count, mapping, text
from agentsdir.adapters.claude.speakers import Notice
from agentsdir.adapters.claude.tokens import parse_result
from agentsdir.formats.blocks import MAIN

if TYPE_CHECKING:
    from agentsdir.adapters.claude.emit import RowContext
    from agentsdir.adapters.claude.rows import TranscriptParser

_SPELLINGS = {
    "session_id": "sessionId",
    "tool_use_result": "toolUseResult",
    "request_id": "requestId",
    "is_api_error_message": "isApiErrorMessage",
    "api_error": "apiError",
    "api_error_status": "apiErrorStatus",
    "api_error_type": "apiErrorType",
    "compact_metadata": "compactMetadata",
    "logical_parent_uuid": "logicalParentUuid",
    "parent_tool_use_id": "parentToolUseID",
    "context_usage": "contextUsage",
    "local_command_run": "commandRun",
}
# The statuses of a `task_updated` line, which may be the only sign that a task is over.
_OVER = frozenset({"completed", "failed", "killed", "stopped"})
_STDOUT_ENVELOPE = frozenset({"type", "uuid", "session_id", "result"})
_UNDERSCORE = re.compile("_([a-z])")


def normalise(value: dict[str, Any]) -> dict[str, Any]:
    """Return a stdout line with the transcript's spelling of its keys."""
    renamed = {_SPELLINGS.get(name, name): item for name, item in value.items()}
    if value.get("type") == "assistant" and value.get("error") is not None:
        renamed["isApiErrorMessage"] = True
    if "compactMetadata" in renamed:
        renamed["compactMetadata"] = _respelled(renamed["compactMetadata"])
    return renamed


def _respelled(value: Any) -> Any:
    """Return a compaction's nested values with the transcript's keys."""
    if isinstance(value, dict):
        return {
            _UNDERSCORE.sub(lambda match: match[1].upper(), name): _respelled(item)
            for name, item in value.items()
        }
    return value


def conversation_of(parser: TranscriptParser, value: dict[str, Any]) -> str:
    """Return the thread of a stdout line: the agent's id if it is known, else the call's id."""
    parent = value.get("parentToolUseID")
    if not isinstance(parent, str):
        return MAIN
    name = parser.stdout_agents.get(parent)
    if name is None:
        name = parser.stdout_agents[parent] = agent_id(parent) or MAIN
        parser.subagents.names("progress", parent, name)
    return name


def task_started(parser: TranscriptParser, value: dict[str, Any]) -> None:
    """Note the agent of a call, before the agent's first line."""
    tool_use_id, task = value.get("tool_use_id"), agent_id(value.get("task_id"))
    if isinstance(tool_use_id, str) and task and "agent" in text(value.get("task_type")):
        parser.stdout_agents.setdefault(tool_use_id, task)
        parser.subagents.names("progress", tool_use_id, task)


def task_updated(parser: TranscriptParser, value: dict[str, Any]) -> None:
    """Note that a task is over, if the line says so."""
    patch = mapping(value.get("patch"))
    if text(patch.get("status")) in _OVER:
        parser.subagents.notified(
            Notice(
                task_id=text(value.get("task_id")),
                tool_use_id=text(value.get("tool_use_id")),
                status=text(patch.get("status")),
                summary=text(patch.get("error")),
                result="",
                duration=None,
            )
        )


def task_notice(value: dict[str, Any]) -> Notice:
    """Read a `task_notification` line."""
    return Notice(
        task_id=text(value.get("task_id")),
        tool_use_id=text(value.get("tool_use_id")),
        status=text(value.get("status")),
        summary=text(value.get("summary")),
        result="",
        duration=count(mapping(value.get("usage")).get("duration_ms")) or None,
    )


def read_result(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Turn a `result` line into the end of a turn, with its cost in the metadata."""
    result = parse_result(value)
    parser.tokens.note_result(value, final=not result.failed)
    if result.text and not result.failed and not parser.answers:
        # `--output-format json` prints nothing but this line.
        parser.emitter.emit("assistant_text", context, 1, {"content": result.text})
    metadata = {"event": "result"}
    metadata.update((name, item) for name, item in value.items() if name not in _STDOUT_ENVELOPE)
    subtype = "error" if result.failed else "session_end"
    return parser.emitter.add_system(context, subtype, result.reason or "result", metadata)


def read_auth_status(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Add a block that the client logs in, or failed to."""
    message = text(value.get("error")) or "Authentication"
    metadata = {name: item for name, item in value.items() if name not in _STDOUT_ENVELOPE}
    return parser.emitter.add_system(context, "auth_status", message, metadata)


def read_rate_limit(parser: TranscriptParser, value: dict[str, Any], context: RowContext) -> int:
    """Add a block that a rate limit is near or was reached; other statuses are hidden."""
    status = text(mapping(value.get("rate_limit_info")).get("status"))
    if status in ("", "allowed"):
        parser.reason = "rate-limit"
        return parser.emitter.log(context, 0, value)
    metadata = {"event": "rate_limit", **mapping(value.get("rate_limit_info"))}
    subtype = "error" if status == "rejected" else "status"
    return parser.emitter.add_system(context, subtype, f"Rate limit: {status}", metadata)
