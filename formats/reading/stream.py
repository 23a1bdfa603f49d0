"""The five stream events (seed session-type-system, section 4; SPEC.md, "Stream events").

`blockId` is a handle within one stream; `block["id"]` is durable and equals the transcript's.
A `block_complete` carries both, and may come without a `block_start` (decision D21).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from agentsdir.formats.reading.blocks import Block

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
