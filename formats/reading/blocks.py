"""The seven blocks, atoms of a conversation (seed session-type-system; SPEC.md, "Blocks").

A block is a plain dict, because it goes to disk and to stdout as it is; the TypedDicts say what
stands in it. Ids are deterministic: they come from the transcript, never from a clock.

Common to all: `type`, `id`, `conversationId` ("main" or a subagent's id), `sessionId` (the native
one), `timestamp` (RFC 3339, or null where the transcript has none), `source` (null in our own log).
Optional on all: `messageId` (groups the parts of one model message), `hidden`, `superseded`,
`lossy` (why the block cannot equal the raw bytes), `usage` (on one block of each model message).
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypeAlias, TypedDict

from agentsdir.formats.errors import Invalid
from agentsdir.formats.reading.usage import as_usage
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

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
TOOL_STATUSES: tuple[ToolStatus, ...] = ("pending", "running", "success", "error")
SYSTEM_SUBTYPES: tuple[SystemSubtype, ...] = (
    "session_start", "session_end", "error", "status", "hook_response", "auth_status", "log",
)  # fmt: skip


class BlockSource(TypedDict):
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
    source: BlockSource | None
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
    overflow: NotRequired[dict[str, Any]]
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
    display: NotRequired[Any]
    durationMs: NotRequired[int]
    toolUseId: NotRequired[str]
    link: NotRequired[dict[str, str]]


# Built and passed around as a dict; one of the TypedDicts above in shape.
Block: TypeAlias = dict[str, Any]

_TEXT: tuple[type, ...] = (str,)
# What a writer insists on, by type: field → the JSON types it may have.
_REQUIRED: dict[str, dict[str, tuple[type, ...]]] = {
    "user_message": {"content": (str, list)},
    "assistant_text": {"content": _TEXT},
    "thinking": {"content": _TEXT},
    "tool_use": {"toolName": _TEXT, "toolUseId": _TEXT, "input": (object,), "status": _TEXT},
    "tool_result": {"toolUseId": _TEXT, "output": (object,), "isError": (bool,)},
    "system": {"subtype": _TEXT, "message": _TEXT},
    "subagent": {"subagentId": (str, NoneType), "input": _TEXT, "status": _TEXT},
}
_COMMON = {"id": _TEXT, "conversationId": _TEXT, "sessionId": _TEXT, "timestamp": (str, NoneType)}
_OPTIONAL: dict[str, tuple[type, ...]] = {
    "source": (dict, NoneType),
    "messageId": _TEXT,
    "hidden": (bool,),
    "superseded": (bool,),
    "lossy": (list,),
    "model": _TEXT,
    "summary": _TEXT,
    "signature": _TEXT,
    "redacted": (bool,),
    "displayName": _TEXT,
    "description": _TEXT,
    "durationMs": (int,),
    "synthetic": (bool,),
    "metadata": (dict,),
    "name": _TEXT,
    "output": (object,),
    "link": (dict,),
    "overflow": (dict,),
}


def check_block(block: Block) -> None:
    """Raise `Invalid` (kind ``bad-block``) unless `block` may be written into a log."""
    kind = block.get("type")
    if kind not in _REQUIRED:
        raise Invalid(f"{kind!r} is no block type", kind="bad-block")
    for fields, needed in ((_COMMON, True), (_REQUIRED[kind], True), (_OPTIONAL, False)):
        for name, types in fields.items():
            if name not in block:
                if needed:
                    raise Invalid(f"a {kind} block needs {name}", kind="bad-block")
            elif not isinstance(block[name], types):
                raise _bad_field(kind, name, block[name])
    for name, is_good in _RULES.items():
        if name in block and not is_good(block[name]):
            raise _bad_field(kind, name, block[name])


def _bad_field(kind: str, name: str, value: Any) -> Invalid:
    return Invalid(f"{name} of a {kind} block is {value!r:.60}", kind="bad-block")


def _are_parts(content: Any) -> bool:
    return isinstance(content, str) or all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )


_RULES: dict[str, Callable[[Any], bool]] = {
    "id": bool,
    "conversationId": bool,
    "timestamp": lambda value: value is None or is_rfc3339(value),
    "content": _are_parts,
    "status": lambda value: value in TOOL_STATUSES,
    "subtype": lambda value: value in SYSTEM_SUBTYPES,
    "durationMs": lambda value: type(value) is int and value >= 0,
    "lossy": lambda value: all(isinstance(reason, str) for reason in value),
    "usage": lambda value: as_usage(value) == value,
}


def block_key(block: Any) -> tuple[str, str]:
    """Return which block of a session a block is: its conversation and its id."""
    known = block if isinstance(block, dict) else {}
    return str(known.get("conversationId")), str(known.get("id"))


def make_block(
    kind: str,
    block_id: str,
    conversation: str,
    session: str,
    timestamp: str | None,
    source: BlockSource | None,
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
