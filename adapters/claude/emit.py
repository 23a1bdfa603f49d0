"""Blocks of a row put into the sink: their ids and sources, and calls with their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.claude.shapes import mapping, text
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import stand_in
from agentsdir.formats.jsontext import packed, unpacked
from agentsdir.formats.sink import DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.blocks import BlockSource
    from agentsdir.formats.sink import BlockSink


# What became of a row; the reader settles its line accordingly, once.
PARSED, HIDDEN, FOLDED, LATER = range(4)


class RowContext(NamedTuple):
    """What all blocks of one row share. `base` is the part of their ids before the index."""

    base: str
    conversation: str
    session: str
    timestamp: str | None
    source: BlockSource
    lossy: tuple[str, ...]


class BlockEmitter:
    """Adds blocks to the sink, and counts those of the current row.

    `first` and `count` are the adjacent handles of one row's blocks. The parser resets them before
    each row.
    """

    __slots__ = ("count", "first", "sink")

    def __init__(self, sink: BlockSink) -> None:
        self.sink = sink
        self.first = DROPPED
        self.count = 0

    def emit(self, kind: str, context: RowContext, index: int, fields: dict[str, Any]) -> int:
        """Add one block of a row; return its handle. `index` is its place in the content."""
        base, conversation, session, timestamp, source, lossy = context
        # Without `make_block`, which would copy `fields` twice: this runs once per block.
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

    def add_system(
        self, context: RowContext, subtype: str, message: str, metadata: dict[str, Any]
    ) -> int:
        """Add the one visible system block of a row; return `PARSED`."""
        fields = {"subtype": subtype, "message": message, "metadata": metadata}
        self.emit("system", context, 0, fields)
        return PARSED

    def log(self, context: RowContext, index: int, value: dict[str, Any], message: str = "") -> int:
        """Keep a row that is no part of the conversation as a hidden block; return `HIDDEN`."""
        if self.sink.wants_hidden:
            self._log(context, index, message or label(value), {"row": value}, value)
        return HIDDEN

    def log_part(self, context: RowContext, index: int, value: dict[str, Any], part: Any) -> int:
        """Keep one part of a row's content as a hidden block; return `HIDDEN`."""
        if self.sink.wants_hidden:
            name = text(part.get("type")) if isinstance(part, dict) else type(part).__name__
            self._log(context, index, f"{label(value)}: {name}", {"part": part}, value)
        return HIDDEN

    def _log(
        self,
        context: RowContext,
        index: int,
        message: str,
        what: dict[str, Any],
        value: dict[str, Any],
    ) -> None:
        metadata = {"rowType": value.get("type"), **what}
        fields = {"subtype": "log", "message": message, "hidden": True, "metadata": metadata}
        self.emit("system", context, index, fields)


def label(value: dict[str, Any]) -> str:
    """Return a short name for a row: its type and subtype."""
    names = (
        text(value.get("type")) or "row without type",
        text(value.get("subtype")),
        text(value.get("operation")),
        text(mapping(value.get("attachment")).get("type")),
    )
    return "/".join(name for name in names if name)


class _Orphan(NamedTuple):
    conversation: str
    tool_use_id: str
    status: str
    source: BlockSource | None


class OpenCalls:
    """The open tool calls of a session, paired with their results by id within a conversation.

    A repeated id (a retry, a copy) means the nearest call before the result.

    Args:
        sink: has the blocks of the calls.
        stand_in: returns the number that stands for a conversation and a call's id.
    """

    def __init__(
        self, sink: BlockSink, stand_in: Callable[[tuple[str, str]], int] = stand_in
    ) -> None:
        self._sink = sink
        self._stand_in = stand_in
        # Calls that wait for their result, and their handles; of the others, a number for each.
        self._open: dict[tuple[str, str], int] = {}
        self.handles: set[int] = set()
        self._answered: set[int] = set()
        self._orphans: list[_Orphan] = []

    def opened(self, conversation: str, tool_use_id: str, handle: int) -> None:
        """Note a call. Its status is stated later, by `answered` or `finish`."""
        key = conversation, tool_use_id
        if key in self._open:
            self._settle(key, "pending")
        self._open[key] = handle
        self.handles.add(handle)

    def answered(self, tool_use_id: str, status: str, context: RowContext) -> None:
        """Note a result, which settles the status of its call."""
        key = context.conversation, tool_use_id
        if key in self._open:
            self._settle(key, status)
            self._answered.add(self._stand_in(key))
        elif self._stand_in(key) not in self._answered:
            self._orphans.append(_Orphan(*key, status, context.source))

    def _settle(self, key: tuple[str, str], status: str) -> None:
        handle = self._open.pop(key)
        self.handles.discard(handle)
        self._sink.amend(handle, status=status)

    def snapshot(self) -> dict[str, Any]:
        """Return as JSON what later rows need of the calls and results so far."""
        return {
            "open": list(self._open),
            "answered": packed("q", self._answered),
            "orphans": [orphan[:3] for orphan in self._orphans],
        }

    def resume(self, snapshot: dict[str, Any]) -> None:
        """Take the calls of a snapshot, whose blocks are not here.

        Raises `ValueError`, `TypeError` or `KeyError` for what is none.
        """
        for conversation, tool_use_id in snapshot["open"]:
            self._open[conversation, tool_use_id] = DROPPED
        self._answered.update(unpacked("q", snapshot["answered"]))
        self._orphans += [
            _Orphan(conversation, tool_use_id, status, None)
            for conversation, tool_use_id, status in snapshot["orphans"]
        ]

    def finish(self) -> None:
        """Settle what is left: calls without a result, and results without a call."""
        for orphan in self._orphans:
            key = orphan.conversation, orphan.tool_use_id
            if key in self._open:
                self._settle(key, orphan.status)
                self._answered.add(self._stand_in(key))
            elif (source := orphan.source) and self._stand_in(key) not in self._answered:
                message = f"no call {orphan.tool_use_id} in conversation {orphan.conversation}"
                self._sink.finding(
                    Finding(
                        "orphan-result",
                        source["file"],
                        message,
                        source["line"],
                        source["offset"],
                        source["length"],
                    )
                )
        for key in list(self._open):
            self._settle(key, "pending")
