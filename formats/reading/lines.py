"""Bytes to physical lines. Only LF ends a line (SPEC.md, "Lines"), and no line is unbounded."""

from __future__ import annotations

from typing import BinaryIO, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_CAP = 64 * 1024 * 1024


class Line(NamedTuple):
    """One physical line. `data` holds its LF where it has one, and is None when over the cap."""

    number: int
    offset: int
    length: int
    data: bytes | None


def read_lines(stream: BinaryIO, *, cap: int = LINE_CAP) -> Iterator[Line]:
    """Yield every physical line of `stream`; memory is bounded by `cap` bytes."""
    readline = stream.readline
    # What `Line(…)` does, without the Python call around it: this runs once per line.
    new = tuple.__new__
    number = offset = 0
    while data := readline(cap):
        number += 1
        length = len(data)
        if length == cap and not data.endswith(b"\n"):
            rest = readline(cap)
            if rest:
                length += len(rest)
                while rest and not rest.endswith(b"\n"):
                    rest = readline(cap)
                    length += len(rest)
                yield Line(number, offset, length, None)
                offset += length
                continue
        yield new(Line, (number, offset, length, data))
        offset += length
