"""The second pass's way back to rows: re-read by place, the last two kept decoded."""

from __future__ import annotations

from typing import Any, BinaryIO

import orjson

from agentsdir.adapters.gemini.index import Index, Place
from agentsdir.adapters.gemini.shapes import dict_of, list_of
from agentsdir.formats.reading import blocks
from agentsdir.formats.reading.salvage import salvage


class Shelf:
    """Rows of one transcript by number.

    Args:
        stream: the transcript's bytes, seekable.
        file: its name, for `source`.
        index: where each row stands.
    """

    def __init__(self, stream: BinaryIO, file: str, index: Index) -> None:
        self._stream = stream
        self._file = file
        self._index = index
        self._kept: dict[int, Any] = {}

    def row(self, number: int) -> Any:
        """Return the value of a row; None if the file was changed under our hands."""
        if number in self._kept:
            return self._kept[number]
        self._stream.seek(self._index.offset[number])
        data = self._stream.read(self._index.length[number])
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            found = salvage(data).values
            value = found[0][0] if found else None
        if len(self._kept) > 1:
            del self._kept[next(iter(self._kept))]
        self._kept[number] = value
        return value

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
        return dict_of(self.entry(place))

    def source(self, place: Place) -> blocks.Source:
        """Return the `source` of a block made from that place."""
        index, number = self._index, place[0]
        return {
            "file": self._file,
            "line": index.line[number],
            "offset": index.offset[number],
            "length": index.length[number],
        }
