"""One file of recorded stream events, read as blocks (`recorded` says what such a file is)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentsdir.formats.digest import short_hash
from agentsdir.formats.errors import Invalid
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN, check_block, make_block
from agentsdir.formats.reading.drift import Drifts
from agentsdir.formats.reading.reducer import Reducer
from agentsdir.formats.reading.rows import LineFeed, Tally, read_rows
from agentsdir.formats.reading.usage import as_usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.rows import Row
    from agentsdir.formats.reading.sink import ParseSink
    from agentsdir.formats.reading.source import Source
    from agentsdir.formats.reading.stream import StreamEvent

_PIPE = "-"


class RecordedFile:
    """One file: open blocks are reduced, completed ones go to the sink."""

    def __init__(self, source: Source, sink: ParseSink) -> None:
        self._source = source
        self._sink = sink
        self._open: dict[tuple[str, str], tuple[Block, Row]] = {}
        self._handles: dict[tuple[str, str], int] = {}

    def read(self) -> None:
        """Read the file to its end. Never raises for what the bytes hold."""
        tally = self._sink.tally
        with self._source.open() as opened:
            for row in read_rows(opened, self._source.name, tally, self._sink.finding):
                if not _is_event(row.value):
                    tally.settle_hidden(row, "unknown")
                    self._add_unknown(row)
                elif row.value["type"] == "block_complete":
                    tally.settle_parsed(row)
                    self._complete(row)
                else:
                    tally.settle_folded(row, "update")
                    self._fold(row)
        for block, row in self._open.values():
            self._add(block, row)

    def _fold(self, row: Row) -> None:
        event = row.value
        if event["type"] == "metadata_update":
            return
        key = (event["conversationId"], event["blockId"])
        if event["type"] == "block_start":
            block = dict(event["block"])
            self._open[key] = (block, row)
        elif key in self._open:
            block = self._open[key][0]
            if event["type"] == "block_update":
                block.update(event["updates"])
            elif isinstance(block.get("content"), str):
                block["content"] += event["delta"]

    def _complete(self, row: Row) -> None:
        event = row.value
        self._open.pop((event["conversationId"], event["blockId"]), None)
        self._add(dict(event["block"]), row)

    def _add(self, block: Block, row: Row) -> None:
        block["source"] = row.source(self._source.name)
        if row.lossy:
            block["lossy"] = sorted({*block.get("lossy", ()), *row.lossy})
        superseded = block.pop("superseded", False)
        used = as_usage(block.pop("usage", None))
        if used:
            block["usage"] = used
        key = (block["conversationId"], block["id"])
        if key in self._handles:
            self._sink.supersede(self._handles[key], "duplicate")
        self._handles[key] = handle = self._sink.add(block)
        if superseded:
            self._sink.supersede(handle, "recorded")
        elif used:
            self._sink.use(block["conversationId"], used)

    def _add_unknown(self, row: Row) -> None:
        if not self._sink.wants_hidden:
            return
        digest = short_hash(row.raw.removesuffix(b"\n"))
        fields = {
            "subtype": "log",
            "message": "an unknown row",
            "hidden": True,
            "metadata": {"rowType": str(row.value.get("type")), "row": row.value},
        }
        block_id = f"h{digest}:{row.line}"
        self._sink.add(
            make_block("system", block_id, MAIN, "", None, row.source(self._source.name), **fields)
        )


class EventTranslator:
    """Tells stream events that come one a line, each as it is (a `Translator`)."""

    def __init__(self) -> None:
        self._reducer = Reducer()
        self._damage: list[Finding] = []
        self._drifts = Drifts()
        self._feed = LineFeed(_PIPE, Tally(), self._damage.append, is_record=_is_event)

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the lines so far."""
        return [*self._damage, *self._drifts.findings()]

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        """Take one line, with or without its LF. Never raises for what the bytes hold."""
        for row in self._feed.rows(line):
            event = row.value
            if not _is_event(event):
                name = str(event.get("type", "without type"))
                self._drifts.note("row", name, row.source(_PIPE), None)
                continue
            # What a stream says of a block whose beginning is not in it is passed on all the same.
            with suppress(Invalid, TypeError, KeyError):
                self._reducer.apply(event)
            yield event

    def end(self) -> Iterator[StreamEvent]:
        """Complete the blocks that a cut left open, as far as they came."""
        for handle, block in self._reducer.open_blocks:
            yield stream.block_complete(handle, block)


def _is_event(event: dict[str, Any]) -> bool:
    """Tell whether a row has the shape of a stream event, so that nothing below can fail."""
    kind = event.get("type")
    if kind not in stream.EVENT_TYPES or not isinstance(event.get("conversationId"), str):
        return False
    if kind == "metadata_update":
        return isinstance(event.get("metadata"), dict)
    if not isinstance(event.get("blockId"), str):
        return False
    if kind == "text_delta":
        return isinstance(event.get("delta"), str)
    if kind == "block_update":
        return isinstance(event.get("updates"), dict)
    block = event.get("block")
    if not isinstance(block, dict):
        return False
    try:
        # Counts that make no sense are left out of the block; the rest of it stands.
        check_block({name: value for name, value in block.items() if name != "usage"})
    except Invalid:
        return False
    return True
