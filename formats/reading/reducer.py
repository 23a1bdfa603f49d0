"""Stream events to conversations. One reducer serves live, followed and stored sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.stream import StreamEvent


class Reducer:
    """Fold stream events into ordered blocks per conversation (pure; keeps no clock).

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
    # Held by nobody else while it grows, a text is not copied for each delta.
    block["content"] = None
    content += delta
    block["content"] = content
