"""Blocks, token counts and stream events: the vocabulary of every conversation."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict

from agentsdir.formats.errors import Invalid
from agentsdir.formats.jsontext import MAX_INT
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable


# The five stream events (seed session-type-system, section 4; SPEC.md, "Stream events").
#
# `blockId` is a handle within one stream; `block["id"]` is durable and equals the transcript's.
# A `block_complete` carries both, and may come without a `block_start` (decision D21).

StreamEvent: TypeAlias = dict[str, Any]

EVENT_TYPES = ("block_start", "text_delta", "block_update", "block_complete", "metadata_update")


def block_start(handle: str, block: Block) -> StreamEvent:
    """A block begins; text blocks begin empty."""
    conversation = block["conversationId"]
    return {
        "type": "block_start",
        "blockId": handle,
        "block": block,
        "conversationId": conversation,
    }


def text_delta(handle: str, delta: str, conversation: str) -> StreamEvent:
    """More text for an open text or thinking block."""
    return {"type": "text_delta", "blockId": handle, "delta": delta, "conversationId": conversation}


def block_update(handle: str, updates: dict[str, Any], conversation: str) -> StreamEvent:
    """Fields of a block change: a tool's status, a subagent's progress."""
    return {
        "type": "block_update",
        "blockId": handle,
        "updates": updates,
        "conversationId": conversation,
    }


def block_complete(handle: str, block: Block) -> StreamEvent:
    """A block is final."""
    conversation = block["conversationId"]
    return {
        "type": "block_complete",
        "blockId": handle,
        "block": block,
        "conversationId": conversation,
    }


def metadata_update(metadata: dict[str, Any], conversation: str) -> StreamEvent:
    """Something about the conversation: `usage` (of the turn), `costUSD`, `model`."""
    return {"type": "metadata_update", "metadata": metadata, "conversationId": conversation}


class Reducer:
    """Folds stream events, live or stored, into ordered blocks per conversation.

    The position of a block is where its handle was first seen, or before the block that its first
    event names as `before`. A completed block is looked up by
    its handle and by its durable id, so a stream that repeats a block amends it.
    """

    def __init__(self) -> None:
        self._conversations: dict[str, dict[str, Block]] = {}
        self._keys: dict[tuple[str, str], str] = {}
        self._open: dict[tuple[str, str], None] = {}
        self.metadata: dict[str, dict[str, Any]] = {}

    @property
    def open_blocks(self) -> list[tuple[str, Block]]:
        """Handle and block of each block that began and was not completed, in order."""
        return [
            (handle, self._conversations[conversation][self._keys[conversation, handle]])
            for conversation, handle in self._open
        ]

    @property
    def conversations(self) -> dict[str, list[Block]]:
        """Conversation id → its blocks, in order of appearance."""
        return {name: list(blocks.values()) for name, blocks in self._conversations.items()}

    def blocks(self, conversation: str = "main") -> list[Block]:
        """Return the blocks of one conversation; empty when nothing was said there."""
        return list(self._conversations.get(conversation, {}).values())

    def apply(self, event: StreamEvent) -> Block | None:
        """Take one event; return the block it touched, if any.

        Raises `Invalid` (kind ``bad-event``) for an unknown type, or for a delta or update to a
        block that never began.
        """
        kind = event.get("type")
        conversation = event.get("conversationId", "main")
        if kind == "metadata_update":
            self.metadata.setdefault(conversation, {}).update(event["metadata"])
            return None
        blocks = self._conversations.setdefault(conversation, {})
        handle = event.get("blockId", "")
        if kind in ("block_start", "block_complete"):
            block = self._put(blocks, conversation, handle, event["block"], event.get("before"))
            if kind == "block_start":
                self._open[conversation, handle] = None
            else:
                self._open.pop((conversation, handle), None)
            return block
        if kind not in ("text_delta", "block_update"):
            raise Invalid(f"unknown stream event type {kind!r}", kind="bad-event")
        key = self._keys.get((conversation, handle))
        if key is None:
            raise Invalid(f"{kind} for block {handle!r}, which never began", kind="bad-event")
        block = blocks[key]
        if kind == "text_delta":
            _extend(block, event["delta"])
        else:
            block.update(event["updates"])
        return block

    def _put(
        self,
        blocks: dict[str, Block],
        conversation: str,
        handle: str,
        block: Block,
        before: str | None,
    ) -> Block:
        block = dict(block)
        key = self._keys.get((conversation, handle))
        if key is None:
            # The same durable id under a new handle is the same block, seen again.
            key = self._keys.get((conversation, "id:" + block["id"]), handle)
            self._keys[conversation, handle] = key
        self._keys[conversation, "id:" + block["id"]] = key
        following = self._keys.get((conversation, before)) if before is not None else None
        if key not in blocks and following is not None:
            behind = list(blocks)[list(blocks).index(following) :]
            blocks[key] = block
            for other in behind:
                blocks[other] = blocks.pop(other)
        blocks[key] = block
        return block


def _extend(block: Block, delta: str) -> None:
    """Add to a block's text. Raises `TypeError` for what cannot be added to it."""
    content = block["content"]
    if type(content) is not str or type(delta) is not str:
        block["content"] = content + delta
        return
    # Without another reference to it, a text grows in place, and is not copied for each delta.
    block["content"] = None
    content += delta
    block["content"] = content


# Token counts in one vocabulary (decision D9), whatever the client calls them.

# inputTokens excludes cache; outputTokens includes thinking; totalTokens = the first four summed.
# `exact` is False where the transcript cannot know, so the numbers are "at least".
Usage: TypeAlias = dict[str, Any]

# Sums of thousands of such counts are still written exactly.
BELIEVABLE = 10**12

COUNTED = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


def usage(
    input_tokens: int,
    output_tokens: int,
    cache_read: int = 0,
    cache_write: int = 0,
    thinking: int | None = None,
    *,
    exact: bool = True,
) -> Usage:
    """Build one usage object; `thinking` is the part of `output_tokens` that was thought."""
    made: Usage = {
        "inputTokens": input_tokens,
        "outputTokens": output_tokens,
        "cacheReadTokens": cache_read,
        "cacheWriteTokens": cache_write,
    }
    if thinking is not None:
        made["thinkingTokens"] = thinking
    made["totalTokens"] = input_tokens + output_tokens + cache_read + cache_write
    made["exact"] = exact
    return made


def add_usage(left: Usage, right: Usage) -> Usage:
    """Return the sum, exact only where both are.

    A sum beyond `jsontext.MAX_INT` is that number and not exact: at least so many.
    """
    thinking = None
    if "thinkingTokens" in left or "thinkingTokens" in right:
        thinking = left.get("thinkingTokens", 0) + right.get("thinkingTokens", 0)
    sent = left["inputTokens"] + right["inputTokens"]
    got = left["outputTokens"] + right["outputTokens"]
    read = left["cacheReadTokens"] + right["cacheReadTokens"]
    wrote = left["cacheWriteTokens"] + right["cacheWriteTokens"]
    whole = usage(sent, got, read, wrote, thinking, exact=left["exact"] and right["exact"])
    if whole["totalTokens"] <= MAX_INT and (thinking or 0) <= MAX_INT:
        return whole
    sent, got, read, wrote = (min(whole[name], MAX_INT) for name in COUNTED)
    thinking = None if thinking is None else min(thinking, MAX_INT)
    bounded = usage(sent, got, read, wrote, thinking, exact=False)
    bounded["totalTokens"] = min(bounded["totalTokens"], MAX_INT)
    return bounded


def less_usage(whole: Usage, part: Usage) -> Usage:
    """Return what is left of `whole` without `part`, which is in it."""
    thinking = None
    if "thinkingTokens" in whole:
        thinking = whole["thinkingTokens"] - part.get("thinkingTokens", 0)
    sent, got, read, wrote = (whole[name] - part[name] for name in COUNTED)
    return usage(sent, got, read, wrote, thinking, exact=whole["exact"])


def larger_usage(left: Usage, right: Usage) -> Usage:
    """Return the larger of each two counts, which is a lower bound."""
    sent, got, read, wrote = (max(left[name], right[name]) for name in COUNTED)
    thinking = max(left.get("thinkingTokens", 0), right.get("thinkingTokens", 0)) or None
    return usage(sent, got, read, wrote, thinking, exact=False)


def is_beyond(left: Usage, right: Usage) -> bool:
    """Tell whether `left` counts more than `right` of anything."""
    return any(left[name] > right[name] for name in COUNTED)


def as_usage(value: Any) -> Usage | None:
    """Return what a stream or a record says as a whole usage object, or None if it says nothing.

    Counts that are missing, no integers or beyond belief are 0, and the result is not exact then.
    """
    if not isinstance(value, dict):
        return None
    counts = [value.get(name) for name in COUNTED]
    whole = [_count(count) or 0 for count in counts]
    sent, got, read, wrote = whole
    thinking = _count(value.get("thinkingTokens"))
    exact = value.get("exact") is not False and whole == counts
    return usage(sent, got, read, wrote, thinking, exact=exact)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= BELIEVABLE else None


def no_usage() -> Usage:
    """Return zero, exactly."""
    return usage(0, 0)


# Blocks (seed session-type-system; SPEC.md, "Blocks").
#
# A block is a plain dict, because it goes to disk and to stdout as it is; the TypedDicts say what
# stands in it. Ids are deterministic: they come from the transcript, never from a clock.
#
# Common to all: `type`, `id`, `conversationId` ("main" or a subagent's id), `sessionId` (the
# native one), `timestamp` (RFC 3339, or null where the transcript has none), `source` (null in our
# own log). Optional on all: `messageId` (groups the parts of one model message), `hidden`,
# `superseded`, `lossy` (why the block cannot equal the raw bytes), `usage` (on one block of each
# model message).

MAIN = "main"

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
    """A prompt of a person or another agent: a string, or text and image parts."""

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
    description: NotRequired[str]


# Built and passed around as a dict; one of the TypedDicts above in shape.
Block: TypeAlias = dict[str, Any]

# The table of block types.

TEXT: tuple[type, ...] = (str,)
ANY: tuple[type, ...] = (object,)
COMPARED, IGNORED = True, False
_ABSENT: Any = object()


class Field(NamedTuple):
    """One field of a block.

    `types` are the JSON types it may have. A block whose value differs from the log in a `COMPARED`
    field is another version of it, and is logged again; that of an `IGNORED` one never is. `nested`
    values are foreign and may nest to any depth. `until_known` stands in a live block until a
    reader knows the value. `is_good` checks what the type leaves open.
    """

    types: tuple[type, ...]
    compared: bool
    required: bool = False
    nested: bool = False
    until_known: Any = _ABSENT
    is_good: Callable[[Any], bool] = lambda _value: True


class BlockType:
    """One row of `BLOCKS`: the type's own fields, by name, and what is derived from them.

    `speaker` is `user`, `model`, `tool`, `subagent` or `client`. `role` is what a block is called
    in the context that a native session is handed (docs/behaviour.md, "Fallback"), with the text of
    its field `text`; a type without a role is not handed over.
    """

    def __init__(
        self, fields: dict[str, Field], *, speaker: str, role: str | None = None, text: str = ""
    ) -> None:
        self.speaker = speaker
        self.role = role
        self.text = text
        self.own = fields
        self.fields = {**COMMON, **fields}
        self.compared = ("type", *(name for name, row in self.fields.items() if row.compared))
        self.nested = tuple(name for name, row in fields.items() if row.nested)
        self.until_known = {
            name: row.until_known for name, row in fields.items() if row.until_known is not _ABSENT
        }


def _are_parts(content: Any) -> bool:
    return isinstance(content, str) or all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )


def _is_duration(value: Any) -> bool:
    return type(value) is int and value >= 0


_STATUS = Field(
    TEXT,
    COMPARED,
    required=True,
    until_known="pending",
    is_good=lambda value: value in TOOL_STATUSES,
)
_DURATION = Field((int,), COMPARED, is_good=_is_duration)

# In every block, beside `type`.
COMMON: dict[str, Field] = {
    "id": Field(TEXT, IGNORED, required=True, is_good=bool),
    "conversationId": Field(TEXT, IGNORED, required=True, is_good=bool),
    "sessionId": Field(TEXT, IGNORED, required=True),
    "timestamp": Field(
        (str, NoneType),
        IGNORED,
        required=True,
        is_good=lambda value: value is None or is_rfc3339(value),
    ),
    "source": Field((dict, NoneType), IGNORED),
    "messageId": Field(TEXT, IGNORED),
    "hidden": Field((bool,), IGNORED),
    "superseded": Field((bool,), COMPARED),
    "lossy": Field(
        (list,), IGNORED, is_good=lambda value: all(isinstance(reason, str) for reason in value)
    ),
    "usage": Field((dict,), IGNORED, is_good=lambda value: as_usage(value) == value),
}

# Every block type, in the order of block.schema.json. The fields of `tool_use` are those of
# block-tool-use.schema.json, and so on.
BLOCKS: dict[str, BlockType] = {
    "user_message": BlockType(
        {"content": Field((str, list), COMPARED, required=True, nested=True, is_good=_are_parts)},
        speaker="user",
        role="user",
        text="content",
    ),
    "assistant_text": BlockType(
        {"content": Field(TEXT, COMPARED, required=True), "model": Field(TEXT, IGNORED)},
        speaker="model",
        role="assistant",
        text="content",
    ),
    "thinking": BlockType(
        {
            "content": Field(TEXT, COMPARED, required=True),
            "summary": Field(TEXT, COMPARED),
            "signature": Field(TEXT, IGNORED),
            "redacted": Field((bool,), IGNORED),
        },
        speaker="model",
    ),
    "tool_use": BlockType(
        {
            "toolName": Field(TEXT, COMPARED, required=True),
            "toolUseId": Field(TEXT, COMPARED, required=True),
            "input": Field(ANY, COMPARED, required=True, nested=True),
            "status": _STATUS,
            "displayName": Field(TEXT, IGNORED),
            "description": Field(TEXT, IGNORED),
        },
        speaker="model",
        role="tool_call",
    ),
    "tool_result": BlockType(
        {
            "toolUseId": Field(TEXT, COMPARED, required=True),
            "output": Field(ANY, COMPARED, required=True, nested=True),
            "isError": Field((bool,), COMPARED, required=True),
            "durationMs": _DURATION,
            "display": Field(ANY, IGNORED, nested=True),
            "overflow": Field((dict,), IGNORED),
            "synthetic": Field((bool,), IGNORED),
        },
        speaker="tool",
        role="tool_result",
        text="output",
    ),
    "system": BlockType(
        {
            "subtype": Field(
                TEXT, COMPARED, required=True, is_good=lambda value: value in SYSTEM_SUBTYPES
            ),
            "message": Field(TEXT, COMPARED, required=True, until_known=""),
            "metadata": Field((dict,), IGNORED, nested=True),
        },
        speaker="client",
    ),
    "subagent": BlockType(
        {
            "subagentId": Field((str, NoneType), COMPARED, required=True, until_known=None),
            "name": Field(TEXT, COMPARED),
            "input": Field(TEXT, COMPARED, required=True),
            "status": _STATUS,
            "output": Field(TEXT, COMPARED),
            "display": Field(ANY, IGNORED, nested=True),
            "durationMs": _DURATION,
            "toolUseId": Field(TEXT, COMPARED),
            "link": Field((dict,), COMPARED),
            "description": Field(TEXT, IGNORED),
        },
        speaker="subagent",
    ),
}


def check_block(block: Block) -> None:
    """Raise `Invalid` (kind ``bad-block``) unless `block` may be written into a log."""
    kind: Any = block.get("type")
    if not isinstance(kind, str) or kind not in BLOCKS:
        raise Invalid(f"{kind!r} is no block type", kind="bad-block")
    for name, field in BLOCKS[kind].fields.items():
        if name not in block:
            if field.required:
                raise Invalid(f"a {kind} block needs {name}", kind="bad-block")
        elif not isinstance(block[name], field.types) or not field.is_good(block[name]):
            message = f"{name} of a {kind} block is {block[name]!r:.60}"
            raise Invalid(message, kind="bad-block")


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


class Deltas:
    """Pieces of a text, which a client may cut amid a character, made into whole characters."""

    def __init__(self) -> None:
        self._half = ""  # the first half of a character whose second comes with the next piece

    def more(self, piece: str) -> str:
        """Return what is complete with `piece`; all that is returned, together, is the text."""
        if piece.isascii() and not self._half:
            return piece
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        return _joined(piece.removesuffix(self._half))

    def rest(self) -> str:
        """Return what is left at the end of the text: a half that nothing followed."""
        half, self._half = self._half, ""
        return _joined(half)


def _joined(text: str) -> str:
    """Make one character of halves that met; what still stands alone cannot be written."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
