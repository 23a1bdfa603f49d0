"""A session that is read again: only what differs from what was emitted is emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.formats import blocks
from agentsdir.formats.source import RecordSpool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.source import Kept


IN_MEMORY = 2 * 1024 * 1024
# A conversation, and a block's handle in it.
Key = tuple[str, str]


class BlockStore:
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

    def holds_as(self, key: Key, other: BlockStore) -> bool:
        """Tell whether a block that is in both stores is the same in the other one."""
        return self._record(key) == other._record(key)

    def __contains__(self, key: Key) -> bool:
        """Tell whether a block is there."""
        return key in self._places

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys, in the order in which the blocks came first."""
        return iter(self._places)


_SUPERSEDED = "superseded"


class EmittedDiff:
    """Passes events on, and keeps the blocks that they leave (docs/reading.md, "Following").

    When a file has to be read again, the events of that reading are gathered from `start_again` on,
    and `finish_again` emits how they differ from what was emitted. A reader that does not know what
    is new states whole blocks as they are now, as often as it likes (`restate`).
    """

    def __init__(self) -> None:
        self._emitted = BlockStore()
        self._metadata: dict[str, dict[str, Any]] = {}
        self._fresh: BlockStore | None = None
        self._fresh_metadata: dict[str, dict[str, Any]] = {}
        # What an incomplete reading did not have: it is not known yet whether it is gone.
        self._missing: set[Key] = set()

    def start_again(self) -> None:
        """Begin to gather: the events that follow are of the session from its start."""
        self._fresh = BlockStore()
        self._fresh_metadata = {}

    def emit(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        """Take events; yield them, or none while they are gathered."""
        for event in events:
            if self._fresh is not None:
                self._note(event, self._fresh, self._fresh_metadata)
            else:
                self._note(event, self._emitted, self._metadata)
                yield event

    def restate(self, block: Block) -> Iterator[StreamEvent]:
        """Take a block as it stands now; yield what is new about it: all, some fields, or nothing.

        Its handle is its id.
        """
        key = block["conversationId"], block["id"]
        if self._fresh is not None:
            self._fresh.put(key, block)
            return
        self._missing.discard(key)
        emitted = self._emitted
        if key not in emitted or not emitted.holds(key, block):
            yield from _news(key, emitted, block)
            emitted.put(key, block)

    def amend(self, key: Key, **late: Any) -> Iterator[StreamEvent]:
        """State fields of a block that was emitted; yield those that are new."""
        if key in (self._emitted if self._fresh is None else self._fresh):
            yield from self.restate({**self[key], **late})

    def __getitem__(self, key: Key) -> Block:
        """Return a block as it was emitted last."""
        return (self._emitted if self._fresh is None else self._fresh)[key]

    def __contains__(self, key: Key) -> bool:
        """Tell whether a block was emitted."""
        return key in (self._emitted if self._fresh is None else self._fresh)

    def finish_again(self, *, whole: bool = True) -> Iterator[StreamEvent]:
        """Yield how what was gathered differs from what was emitted; nothing if nothing was.

        Args:
            whole: what was emitted and not gathered is gone; else that is not known until `close`.
        """
        fresh, emitted = self._fresh, self._emitted
        if fresh is None:
            return
        self._fresh, self._emitted = None, fresh
        self._missing.clear()
        for key in fresh:
            if key not in emitted or not fresh.holds_as(key, emitted):
                yield from _news(key, emitted, fresh[key])
        for key in emitted:
            if key in fresh:
                continue
            fresh.put(key, emitted[key])
            if whole:
                yield from self._gone(key)
            else:
                self._missing.add(key)
        for conversation, metadata in self._fresh_metadata.items():
            known = self._metadata.setdefault(conversation, {})
            news = {name: value for name, value in metadata.items() if known.get(name) != value}
            if news:
                known.update(news)
                yield blocks.metadata_update(news, conversation)

    def close(self) -> Iterator[StreamEvent]:
        """Yield that what an incomplete reading left out is gone: nothing more will come."""
        for key in [key for key in self._emitted if key in self._missing]:
            yield from self._gone(key)
        self._missing.clear()

    def _gone(self, key: Key) -> Iterator[StreamEvent]:
        block = self._emitted[key]
        if not block.get(_SUPERSEDED):
            yield blocks.block_update(key[1], {_SUPERSEDED: True}, key[0])
        # It may come back: some clients cut the end off and write it again.
        self._emitted.put(key, {**block, _SUPERSEDED: True})

    def _note(
        self, event: StreamEvent, store: BlockStore, metadata: dict[str, dict[str, Any]]
    ) -> None:
        if event["type"] == "metadata_update":
            metadata.setdefault(event["conversationId"], {}).update(event["metadata"])
        else:
            store.apply(event)


def _news(key: Key, emitted: BlockStore, block: Block) -> Iterator[StreamEvent]:
    if key not in emitted:
        yield blocks.block_complete(key[1], block)
    else:
        changes = _changes(emitted[key], block)
        if changes is None:
            yield blocks.block_complete(key[1], block)
        elif changes:
            yield blocks.block_update(key[1], changes, key[0])


def _changes(old: Block, new: Block) -> dict[str, Any] | None:
    """Return the fields that make `new` of `old`; None where one must go, which no update says."""
    if not old.keys() - {_SUPERSEDED} <= new.keys():
        return None
    changes = {name: value for name, value in new.items() if old.get(name) != value}
    if old.get(_SUPERSEDED) and _SUPERSEDED not in new:
        changes[_SUPERSEDED] = False
    return changes
