"""The blocks that a stream of events leaves, each at hand, and few bytes of them in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from agentsdir.formats.reading.spool import RecordSpool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.spool import Kept
    from agentsdir.formats.reading.stream import StreamEvent

IN_MEMORY = 2 * 1024 * 1024
# A conversation, and a block's handle in it.
Key = tuple[str, str]


class BlockBook:
    """Completed blocks by conversation and handle, as their latest event left them.

    Unlike a `Reducer` it keeps no block in memory, and none that has merely begun.
    """

    def __init__(self) -> None:
        self._spool = RecordSpool(IN_MEMORY)
        self._places: dict[Key, Kept] = {}

    def apply(self, event: StreamEvent) -> Block | None:
        """Take one event; return the whole block, if it completed one or changed a complete one."""
        key = event["conversationId"], event.get("blockId", "")
        block: Block
        if event["type"] == "block_complete":
            block = event["block"]
        elif event["type"] == "block_update" and key in self._places:
            block = {**self[key], **event["updates"]}
        else:
            return None
        before = event.get("before")
        self.put(key, block, None if before is None else (key[0], before))
        return block

    def put(self, key: Key, block: Block, before: Key | None = None) -> None:
        """Keep a block in place of the one that was there; a new one stands before another."""
        places = self._places
        is_new = key not in places
        places[key] = self._spool.add(orjson.dumps(block))
        if is_new and before is not None and before in places:
            keys = list(places)
            for other in keys[keys.index(before) : -1]:
                places[other] = places.pop(other)

    def __getitem__(self, key: Key) -> Block:
        """Return a block that is there."""
        block: Block = orjson.loads(self._record(key))
        return block

    def _record(self, key: Key) -> bytes:
        return self._spool.read(self._places[key])

    def holds(self, key: Key, block: Block) -> bool:
        """Tell whether a block that is there was put in just like that."""
        return self._record(key) == orjson.dumps(block)

    def holds_as(self, key: Key, other: BlockBook) -> bool:
        """Tell whether a block that is in both books is the same in the other one."""
        return self._record(key) == other._record(key)

    def __contains__(self, key: Key) -> bool:
        """Tell whether a block is there."""
        return key in self._places

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys, in the order in which the blocks came first."""
        return iter(self._places)
