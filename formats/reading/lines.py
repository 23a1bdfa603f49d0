"""Bytes to physical lines. Only LF ends a line, and no line is unbounded.

See docs/reading.md, "Lines".
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_CAP = 64 * 1024 * 1024
_CHUNK = 1024 * 1024


class Line(NamedTuple):
    """One physical line. `data` holds its LF where it has one, and is None when over the cap."""

    number: int
    offset: int
    length: int
    data: bytes | None


def read_lines(stream: BinaryIO, *, cap: int = LINE_CAP) -> Iterator[Line]:
    """Yield every physical line of `stream`; memory is bounded by `cap` bytes."""
    number = offset = 0
    while data := stream.readline(cap):
        number += 1
        rest = skip_line(stream, data, cap)
        length = len(data) + rest
        yield Line(number, offset, length, None if rest else data)
        offset += length


def skip_line(stream: BinaryIO, data: bytes, cap: int) -> int:
    """Pass over what a line has beyond `data`, its first `cap` bytes; return how many bytes."""
    skipped = 0
    while len(data) == cap and not data.endswith(b"\n"):
        skipped += _skip_hole(stream)
        cap = min(cap, _CHUNK)
        data = stream.readline(cap)
        skipped += len(data)
    return skipped


def _skip_hole(stream: BinaryIO) -> int:
    """Pass over a part of a sparse file that was never written, and so holds no LF.

    A log of ten gigabytes of nothing is what a crash can leave, and is not worth reading.
    """
    try:
        descriptor, here = stream.fileno(), stream.tell()
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            there = os.lseek(descriptor, here, os.SEEK_DATA) if here < end else here
        except OSError as error:
            there = end if error.errno == errno.ENXIO else here
        os.lseek(descriptor, before, os.SEEK_SET)
    except (OSError, AttributeError):  # a pipe, bytes in memory, or a system without holes
        return 0
    stream.seek(there)
    return there - here
