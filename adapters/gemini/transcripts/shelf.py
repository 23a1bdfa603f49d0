"""The way back from blocks to rows: by place, the long ones kept decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agentsdir.adapters.gemini.transcripts.shapes import dict_of, list_of
from agentsdir.formats.reading.salvage import salvage

if TYPE_CHECKING:
    from agentsdir.adapters.gemini.transcripts.index import Index
    from agentsdir.adapters.gemini.transcripts.messages import Place
    from agentsdir.formats.reading import blocks

# How many rows that were read again stay decoded, and how many bytes they have.
ROWS = 8
ROOM = 32 * 1024 * 1024


class Later(Exception):
    """What a block needs is not at hand while the transcript is being read."""


class Shelf:
    """Rows of one transcript by number: the ones last read are at hand, all others are read again.

    Args:
        stream: the transcript's bytes, seekable; None while they are read for the first time.
        file: its name, for `source`.
        index: where each row stands.
    """

    def __init__(self, stream: BinaryIO | None, file: str, index: Index) -> None:
        self._stream = stream
        self._file = file
        self._index = index
        self._kept: dict[int, Any] = {}
        # The last row that a source was made for, and that source.
        self._sourced = -1
        self._source: blocks.BlockSource

    def hold(self, value: Any) -> None:
        """Keep the row that the index took last at hand, until `release`."""
        self._kept[len(self._index.line) - 1] = value

    def release(self) -> None:
        """Let go of all rows but the last one."""
        last = len(self._index.line) - 1
        self._kept = {last: self._kept[last]}

    def read_from(self, stream: BinaryIO) -> None:
        """Read rows again from here on."""
        self._stream = stream
        self._kept.clear()

    def row(self, number: int) -> Any:
        """Return the value of a row; None if the file was changed under our hands.

        Raises `Later` for one that is not at hand before it can be read again.
        """
        if number in self._kept:
            return self._kept[number]
        if self._stream is None:
            raise Later
        self._stream.seek(self._index.offset[number])
        data = self._stream.read(self._index.length[number])
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            found = salvage(data).values
            value = found[0][0] if found else None
        self._kept[number] = value
        self._make_room(number)
        return value

    def _make_room(self, number: int) -> None:
        """Let go of rows, the shortest first, which are the cheapest to read again."""
        kept, length = self._kept, self._index.length
        while len(kept) > 1 and (len(kept) > ROWS or sum(length[one] for one in kept) > ROOM):
            del kept[min((one for one in kept if one != number), key=length.__getitem__)]

    def entry(self, place: Place) -> Any:
        """Return what stands at a place: a row, or an entry of the row's message list."""
        number, at = place
        value = self.row(number)
        if at < 0:
            return value
        row = dict_of(value)
        messages = list_of(dict_of(row.get("$set", row)).get("messages"))
        return messages[at] if at < len(messages) else None

    def message(self, place: Place) -> dict[str, Any]:
        """Return the message at a place; empty if it is gone."""
        number, at = place
        value = self._kept.get(number) if at < 0 else None
        return value if type(value) is dict else dict_of(self.entry(place))

    def source(self, place: Place) -> blocks.BlockSource:
        """Return the `source` of a block made from that place, to be left as it is."""
        number = place[0]
        if number != self._sourced:
            index = self._index
            self._sourced = number
            self._source = {
                "file": self._file,
                "line": index.line[number],
                "offset": index.offset[number],
                "length": index.length[number],
            }
        return self._source
