"""A session that is read again: only what differs from what was emitted is emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.formats import blocks, jsontext
from agentsdir.formats.block_lines import BlockStore, line_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentsdir.formats.block_lines import Key
    from agentsdir.formats.blocks import Block, StreamEvent


_SUPERSEDED = "superseded"


class _Reading:
    """The blocks that one reading of a session gives, in order, and what it says beside them."""

    def __init__(self, store: BlockStore) -> None:
        self.store = store
        self.order: dict[Key, None] = {}
        self.metadata: dict[str, dict[str, Any]] = {}

    def take(self, events: Iterable[StreamEvent], lines: Iterator[tuple[Key, bytes]]) -> None:
        """Take events; `lines` has the blocks that they complete."""
        store, order = self.store, self.order
        for event in events:
            kind, conversation = event["type"], event["conversationId"]
            if kind == "metadata_update":
                self.metadata.setdefault(conversation, {}).update(event["metadata"])
                continue
            if kind == "block_update":
                store.update((conversation, event["blockId"]), event["updates"])
                continue
            key, line = next(lines)
            if "before" in event and key not in order:
                self._insert(key, (conversation, event["before"]))
            else:
                order[key] = None
            store.put(key, event["block"], line)

    def _insert(self, key: Key, before: Key) -> None:
        order = self.order
        keys = list(order)
        order[key] = None
        for other in keys[keys.index(before) :] if before in order else ():
            order[other] = order.pop(other)

    def put(self, key: Key, block: Block, line: bytes) -> None:
        """Keep a block, in place of the one that was there."""
        self.order[key] = None
        self.store.put(key, block, line)


class EmittedDiff:
    """Passes events on, and keeps the blocks that they leave (docs/reading.md, "Following").

    When a file has to be read again, the events of that reading are gathered from `start_again` on,
    and `finish_again` emits how they differ from what was emitted. A reader that does not know what
    is new states whole blocks as they are now, as often as it likes (`restate`).

    Args:
        store: has the blocks as the events left them; several diffs of a session may share it.
    """

    def __init__(self, store: BlockStore) -> None:
        self._emitted = _Reading(store)
        self._fresh: _Reading | None = None
        # What an incomplete reading did not have: it is not known yet whether it is gone.
        self._missing: set[Key] = set()

    def start_again(self) -> None:
        """Begin to gather: the events that follow are of the session from its start."""
        self._fresh = _Reading(BlockStore())

    def emit(
        self, events: Sequence[StreamEvent], lines: Iterable[tuple[Key, bytes]] = ()
    ) -> Iterator[StreamEvent]:
        """Take events; yield them, or none while they are gathered.

        Args:
            events: what a reader says.
            lines: the key of each block that these events complete, and its `line_of`.
        """
        (self._fresh or self._emitted).take(events, iter(lines))
        if self._fresh is None:
            yield from events

    def restate(self, block: Block) -> Iterator[StreamEvent]:
        """Take a block as it stands now; yield what is new about it: all, some fields, or nothing.

        Its handle is its id.
        """
        key = block["conversationId"], block["id"]
        line = line_of(block)
        if line is None:
            block = jsontext.cleaned(block)
            line = orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE)
        if self._fresh is not None:
            self._fresh.put(key, block, line)
            return
        self._missing.discard(key)
        emitted = self._emitted
        if key not in emitted.order or emitted.store.line(key) != line:
            yield from self._news(key, block, line)

    def _news(self, key: Key, block: Block, line: bytes) -> Iterator[StreamEvent]:
        """Take a block as it stands now; yield what differs from what was emitted of it."""
        emitted = self._emitted
        changes = _changes(emitted.store[key], block) if key in emitted.order else None
        if changes is None:
            emitted.put(key, block, line)
            yield blocks.block_complete(key[1], block)
        elif changes:
            emitted.store.update(key, changes)
            yield blocks.block_update(key[1], changes, key[0])

    def amend(self, key: Key, **late: Any) -> Iterator[StreamEvent]:
        """State fields of a block that was emitted; yield those that are new."""
        if key in self:
            yield from self.restate({**self[key], **late})

    def __getitem__(self, key: Key) -> Block:
        """Return a block as it was emitted last."""
        return (self._fresh or self._emitted).store[key]

    def __contains__(self, key: Key) -> bool:
        """Tell whether a block was emitted."""
        return key in (self._fresh or self._emitted).order

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys of the blocks that were emitted, in the order in which they stand."""
        return iter((self._fresh or self._emitted).order)

    def finish_again(self, *, whole: bool = True) -> Iterator[StreamEvent]:
        """Yield how what was gathered differs from what was emitted; nothing if nothing was.

        Args:
            whole: what was emitted and not gathered is gone; else that is not known until `close`.
        """
        fresh, emitted = self._fresh, self._emitted
        if fresh is None:
            return
        self._fresh = None
        self._missing.clear()
        before = list(emitted.order)
        for key in fresh.order:
            line = fresh.store.line(key)
            if key not in emitted.order or emitted.store.line(key) != line:
                yield from self._news(key, orjson.loads(line), line)
        for key in before:
            if key in fresh.order:
                continue
            fresh.order[key] = None
            if whole:
                yield from self._gone(key)
            else:
                self._missing.add(key)
        emitted.order = fresh.order
        for conversation, metadata in fresh.metadata.items():
            known = emitted.metadata.setdefault(conversation, {})
            news = {name: value for name, value in metadata.items() if known.get(name) != value}
            if news:
                known.update(news)
                yield blocks.metadata_update(news, conversation)

    def close(self) -> Iterator[StreamEvent]:
        """Yield that what an incomplete reading left out is gone: nothing more will come."""
        for key in [key for key in self if key in self._missing]:
            yield from self._gone(key)
        self._missing.clear()

    def _gone(self, key: Key) -> Iterator[StreamEvent]:
        # It may come back: some clients cut the end off and write it again.
        store = self._emitted.store
        if not store[key].get(_SUPERSEDED):
            store.update(key, {_SUPERSEDED: True})
            yield blocks.block_update(key[1], {_SUPERSEDED: True}, key[0])


def _changes(old: Block, new: Block) -> dict[str, Any] | None:
    """Return the fields that make `new` of `old`; None where one must go, which no update says."""
    if not old.keys() - {_SUPERSEDED} <= new.keys():
        return None
    changes = {name: value for name, value in new.items() if old.get(name) != value}
    if old.get(_SUPERSEDED) and _SUPERSEDED not in new:
        changes[_SUPERSEDED] = False
    return changes
