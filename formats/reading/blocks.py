"""The seven blocks, atoms of a conversation (seed session-type-system; SPEC.md, "Blocks").

A block is a plain dict, because it goes to disk and to stdout as it is; the TypedDicts say what
stands in it. Ids are deterministic: they come from the transcript, never from a clock.

Common to all: `type`, `id`, `conversationId` ("main" or a subagent's id), `sessionId` (the native
one), `timestamp` (RFC 3339, or null where the transcript has none), `source` (null in our own log).
Optional on all: `messageId` (groups the parts of one model message), `hidden`, `superseded`,
`lossy` (why the block cannot equal the raw bytes), `usage` (on one block of each model message).
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

MAIN = "main"

BLOCK_TYPES = (
    "user_message",
    "assistant_text",
    "thinking",
    "tool_use",
    "tool_result",
    "system",
    "subagent",
)

ToolStatus = Literal["pending", "running", "success", "error"]
SystemSubtype = Literal[
    "session_start", "session_end", "error", "status", "hook_response", "auth_status", "log"
]
# Built and passed around as a dict; one of the TypedDicts below in shape.
Block: TypeAlias = dict[str, Any]


class Source(TypedDict):
    """Where the row stands from which a block was made; byte offset and length."""

    file: str
    line: int | None
    offset: int | None
    length: int | None


class _Common(TypedDict):
    id: str
    conversationId: str
    sessionId: str
    timestamp: str | None
    source: Source | None
    messageId: NotRequired[str]
    hidden: NotRequired[bool]
    superseded: NotRequired[bool]
    lossy: NotRequired[list[str]]
    usage: NotRequired[dict[str, Any]]


class UserMessageBlock(_Common):
    """What a person (or whoever plays that part) said: a string, or text and image parts."""

    type: Literal["user_message"]
    content: str | list[dict[str, Any]]


class AssistantTextBlock(_Common):
    """Text the model wrote for the reader."""

    type: Literal["assistant_text"]
    content: str
    model: NotRequired[str]


class ThinkingBlock(_Common):
    """What the model thought, and its summary where the client keeps one."""

    type: Literal["thinking"]
    content: str
    summary: NotRequired[str]
    signature: NotRequired[str]
    redacted: NotRequired[bool]


class ToolUseBlock(_Common):
    """A tool call. `status` is pending where no result is known."""

    type: Literal["tool_use"]
    toolName: str
    toolUseId: str
    input: Any
    status: ToolStatus
    displayName: NotRequired[str]
    description: NotRequired[str]


class ToolResultBlock(_Common):
    """What a tool call gave, as the model saw it (`output`) and as the client showed it."""

    type: Literal["tool_result"]
    toolUseId: str
    output: Any
    isError: bool
    durationMs: NotRequired[int]
    display: NotRequired[Any]
    synthetic: NotRequired[bool]


class SystemBlock(_Common):
    """An event around the conversation: starts, ends, errors, notices, unknown rows."""

    type: Literal["system"]
    subtype: SystemSubtype
    message: str
    metadata: NotRequired[dict[str, Any]]


class SubagentBlock(_Common):
    """The reference to a subagent's own thread, at the place where it was called."""

    type: Literal["subagent"]
    subagentId: str | None
    name: NotRequired[str]
    input: str
    status: ToolStatus
    output: NotRequired[str]
    durationMs: NotRequired[int]
    toolUseId: NotRequired[str]
    link: NotRequired[dict[str, str]]


def make_block(
    kind: str,
    block_id: str,
    conversation: str,
    session: str,
    timestamp: str | None,
    source: Source | None,
    **fields: Any,
) -> Block:
    """Return a block with the common fields first, then `fields`, then `source`."""
    block: Block = {
        "type": kind,
        "id": block_id,
        "conversationId": conversation,
        "sessionId": session,
        "timestamp": timestamp,
    }
    block.update(fields)
    block["source"] = source
    return block
