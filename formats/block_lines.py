"""Blocks as lines of JSON: how they are encoded, and a store that keeps them so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.formats import jsontext
from agentsdir.formats.blocks import BLOCKS
from agentsdir.formats.jsontext import CONTAINERS, deeper_than
from agentsdir.formats.source import LineSpool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.formats.blocks import Block, StreamEvent

# Where foreign values of any depth can stand, by block type.
NESTED = {kind: row.nested for kind, row in BLOCKS.items() if row.nested}
_DEEPEST = jsontext.MAX_DEPTH - 1  # the block itself is a level


def line_of(block: Block) -> bytes | None:
    """Return a block as a line of JSON, LF included; None where no encoder takes it."""
    try:
        line = orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return None
    for name in NESTED.get(block["type"], ()):
        if type(block.get(name)) in CONTAINERS and deeper_than(block[name], _DEEPEST):
            return None
    return line


def encodable(block: Block) -> Block:
    """Return the block as it is, or, where no encoder would take it, cleaned and marked `lossy`."""
    return jsontext.cleaned(block) if line_of(block) is None else block


def is_too_deep(block: Block, names: Iterable[str]) -> bool:
    """Tell whether any of these fields of a block nests deeper than a line may."""
    for name in names:
        value = block.get(name)
        if type(value) in CONTAINERS and deeper_than(value, _DEEPEST):
            return True
    return False


# A conversation, and a block's handle in it.
Key = tuple[str, str]

WHOLE = frozenset({"type"})
"""What changed of a block that is new."""
IN_MEMORY = 2 * 1024 * 1024
# How many blocks are kept as they are, and how long a line may be of which they are.
RECENT = 16
RECENT_LINE = 128 * 1024


class BlockStore:
    """Completed blocks by conversation and handle, each as its latest event left it.

    Unlike a `Reducer` it keeps only the last blocks in memory, which most updates are about, and
    none that has merely begun.
    """

    def __init__(self) -> None:
        self._spool = LineSpool(IN_MEMORY)
        # The number of each block's line in the spool, `_UNWRITTEN` for one that is in `_recent`.
        self._numbers: dict[Key, int] = {}
        self._recent: dict[Key, tuple[Block, bytes]] = {}
        # What changed of a block after its line was written, as an object of JSON.
        self._late: dict[Key, bytes] = {}
        # What `changes` returns.
        self._changed: dict[Key, frozenset[str]] = {}

    def changes(self) -> dict[Key, frozenset[str]]:
        """Return the blocks that changed since the last call, in order, and which of their fields.

        Where a block is new, or was put in place of another, these are `WHOLE`, and what was
        updated since.
        """
        changed, self._changed = self._changed, {}
        return changed

    def apply(self, event: StreamEvent) -> None:
        """Take one event; an update counts only for a block that is complete."""
        key = event["conversationId"], event.get("blockId", "")
        if event["type"] == "block_complete":
            block = event["block"]
            self.put(key, block, orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE))
        elif event["type"] == "block_update" and key in self._numbers:
            self.update(key, event["updates"])

    def put(self, key: Key, block: Block, line: bytes) -> None:
        """Keep a block, in place of the one that was there. `line` is its `line_of`."""
        recent = self._recent
        recent[key] = block, line
        self._numbers[key] = _UNWRITTEN
        changed = self._changed.get(key)
        self._changed[key] = WHOLE if changed is None else changed | WHOLE
        if self._late:
            self._late.pop(key, None)
        if len(line) > RECENT_LINE:
            self._write(len(recent))
        elif len(recent) >= RECENT:
            self._write(len(recent) - RECENT // 2)

    def _write(self, count: int) -> None:
        recent, numbers, number = self._recent, self._numbers, len(self._spool)
        lines: list[bytes] = []
        for key in list(recent)[:count]:
            lines.append(recent.pop(key)[1])
            numbers[key] = number
            number += 1
        self._spool.add(*lines)

    def update(self, key: Key, fields: dict[str, Any]) -> None:
        """Change fields of a block that is there."""
        changed = self._changed.get(key)
        self._changed[key] = frozenset(fields) if changed is None else changed | fields.keys()
        recent = self._recent.get(key)
        if recent is not None:
            block = {**recent[0], **fields}
            self._recent[key] = block, orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE)
        else:
            late = self._late.get(key)
            news = fields if late is None else {**orjson.loads(late), **fields}
            # Copied: what an encoder returns often takes far more memory.
            self._late[key] = bytes(memoryview(orjson.dumps(news)))

    def __contains__(self, key: Key) -> bool:
        """Tell whether a block is there."""
        return key in self._numbers

    def __getitem__(self, key: Key) -> Block:
        """Return a block that is there."""
        block: Block = orjson.loads(self.line(key))
        return block

    def line(self, key: Key) -> bytes:
        """Return a block that is there as a line of JSON."""
        if key in self._recent:
            return self._recent[key][1]
        line = self._spool.line(self._numbers[key])
        late = self._late.get(key)
        if late is None:
            return line
        block = {**orjson.loads(line), **orjson.loads(late)}
        return orjson.dumps(block, None, orjson.OPT_APPEND_NEWLINE)

    def pieces(self, keys: Iterable[Key]) -> Iterator[bytes]:
        """Yield blocks that are there as lines of JSON, some at a time."""
        begin = end = 0  # lines of the spool that stand one after another
        for key in keys:
            number = self._numbers[key]
            is_line = number != _UNWRITTEN and key not in self._late
            if is_line and number == end:
                end += 1
                continue
            yield from self._spool.pieces(begin, end)
            if is_line:
                begin, end = number, number + 1
            else:
                yield self.line(key)
                begin = end = 0
        yield from self._spool.pieces(begin, end)


_UNWRITTEN = -1
