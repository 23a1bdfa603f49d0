"""From a row to the sink: where a block stands, how it is named, and what is merely logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.claude.shapes import mapping, text
from agentsdir.formats.reading.sink import DROPPED

if TYPE_CHECKING:
    from agentsdir.formats.reading.block_sink import BlockSink
    from agentsdir.formats.reading.blocks import BlockSource

# What became of a row; the reader settles its line accordingly, once.
PARSED, HIDDEN, FOLDED, LATER = range(4)


class Place(NamedTuple):
    """What all blocks of one row share. `base` is the part of their ids before the index."""

    base: str
    conversation: str
    session: str
    timestamp: str | None
    source: BlockSource
    lossy: tuple[str, ...]


class Emitter:
    """Adds blocks to the sink, and knows which ones the current row gave.

    `first` and `count` tell the run of handles of one row, whose reader sets them back before it;
    a row's blocks are adjacent.
    """

    __slots__ = ("count", "first", "sink")

    def __init__(self, sink: BlockSink) -> None:
        self.sink = sink
        self.first = DROPPED
        self.count = 0

    def emit(self, kind: str, place: Place, index: int, fields: dict[str, Any]) -> int:
        """Add one block of a row; return its handle. `index` is its place in the content."""
        base, conversation, session, timestamp, source, lossy = place
        # Spelled out, for this runs once per block: `make_block` would copy `fields` twice.
        block = {
            "type": kind,
            "id": f"{base}:{index}",
            "conversationId": conversation,
            "sessionId": session,
            "timestamp": timestamp,
            **fields,
            "source": source,
        }
        if lossy:
            block["lossy"] = list(lossy)
        handle = self.sink.add(block)
        if handle != DROPPED:
            if not self.count:
                self.first = handle
            self.count += 1
        return handle

    def say(self, place: Place, subtype: str, message: str, metadata: dict[str, Any]) -> int:
        """Add a row's one visible system block; return `PARSED`."""
        fields = {"subtype": subtype, "message": message, "metadata": metadata}
        self.emit("system", place, 0, fields)
        return PARSED

    def log(self, place: Place, index: int, value: dict[str, Any], message: str = "") -> int:
        """Keep a row that is no part of the conversation as a hidden block; return `HIDDEN`."""
        if self.sink.wants_hidden:
            self._log(place, index, message or label(value), {"row": value}, value)
        return HIDDEN

    def log_part(self, place: Place, index: int, value: dict[str, Any], part: Any) -> int:
        """Keep one part of a row's content as a hidden block; return `HIDDEN`."""
        if self.sink.wants_hidden:
            name = text(part.get("type")) if isinstance(part, dict) else type(part).__name__
            self._log(place, index, f"{label(value)}: {name}", {"part": part}, value)
        return HIDDEN

    def _log(
        self, place: Place, index: int, message: str, what: dict[str, Any], value: dict[str, Any]
    ) -> None:
        metadata = {"rowType": value.get("type"), **what}
        fields = {"subtype": "log", "message": message, "hidden": True, "metadata": metadata}
        self.emit("system", place, index, fields)


def label(value: dict[str, Any]) -> str:
    """Name a row in a few words: its type and subtype."""
    names = (
        text(value.get("type")) or "row without type",
        text(value.get("subtype")),
        text(value.get("operation")),
        text(mapping(value.get("attachment")).get("type")),
    )
    return "/".join(name for name in names if name)
