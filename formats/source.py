"""Where transcript bytes come from, and where scratch bytes go."""

from __future__ import annotations

import io
import os
import tempfile
from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO, Protocol

from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.rows import LINE_CAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    class Readable(Protocol):
        """What can be read from its beginning to its end."""

        def read(self, size: int, /) -> bytes:
            """Return about `size` bytes, or nothing at the end."""


# Scratch bytes: in memory while they are few, in an unlinked file from there on.

CHUNK = 1024 * 1024
LIMIT = 8 * CHUNK
GATHERED = 512  # pieces per system call; POSIX allows 1024


class Pieces:
    """Pieces of bytes as a stream that is read once. Each is at least a byte."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)

    def read(self, size: int, /) -> bytes:
        """Return whole pieces of together about `size` bytes, or nothing at the end."""
        held: list[bytes] = []
        while size > 0 and (piece := next(self._pieces, b"")):
            held.append(piece)
            size -= len(piece)
        return b"".join(held)


def stream_of(pieces: Iterable[bytes]) -> BinaryIO:
    """Return pieces of bytes as a stream that is read once."""
    return io.BufferedReader(_Stream(pieces))


class _Stream(io.RawIOBase):
    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        taken = self._left[: len(buffer)]
        self._left = self._left[len(taken) :]
        buffer[: len(taken)] = taken
        return len(taken)


class _Scratch:
    """A temporary file without a name, made when first written to."""

    def __init__(self) -> None:
        self._file: io.FileIO | None = None

    def write(self, pieces: list[bytes]) -> None:
        """Append all pieces. Raises `AgentsdirError` when the disk refuses."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115, lives with us
            for at in range(0, len(pieces), GATHERED):
                _write_all(self._file.fileno(), pieces[at : at + GATHERED])
        except OSError as error:
            raise AgentsdirError(f"cannot spool to a scratch file: {error.strerror}") from error

    def open(self) -> BinaryIO:
        """Return a stream over what was written, at its start; one reader at a time."""
        if self._file is None:
            return io.BytesIO()
        self._file.seek(0)
        return _Unclosing(self._file, CHUNK)

    def read(self, offset: int, length: int) -> bytes:
        """Return a part of what was written."""
        assert self._file is not None
        return os.pread(self._file.fileno(), length, offset)

    def __del__(self) -> None:
        """Close the file, which is then gone."""
        if self._file is not None:
            self._file.close()


def _write_all(descriptor: int, pieces: list[bytes]) -> None:
    written = os.writev(descriptor, pieces)
    rest = memoryview(b"".join(pieces))[written:] if written < sum(map(len, pieces)) else None
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class _Unclosing(io.BufferedReader):
    """A reader that leaves the file open for the next one."""

    def close(self) -> None:
        """Do nothing."""


class LineSpool:
    """Lines, written one by one and read back in order, any number of times.

    Args:
        limit: how many bytes to keep in memory; the lines after that go to the scratch file.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._room = limit
        # The lines that were not stored yet, and how many bytes they are.
        self._held: list[bytes] = []
        self._size = 0
        # Where each stored line ends.
        self._ends = array("q")
        # All stored lines, joined: by chunk, its first line, its offset, and itself if it is kept.
        self._firsts = array("q", [0])
        self._offsets = array("q", [0])
        self._kept: list[bytes] = []
        self._scratch = _Scratch()

    def __len__(self) -> int:
        """Return how many lines there are."""
        return len(self._ends) + len(self._held)

    def add(self, *lines: bytes) -> None:
        """Append lines, each with its LF. Raises `AgentsdirError` when the disk refuses."""
        self._held += lines
        self._size += sum(map(len, lines))
        if self._size > CHUNK:
            self._store()

    def _store(self) -> None:
        held, begin = self._held, self._offsets[-1]
        ends = accumulate(map(len, held), initial=begin)
        next(ends)
        self._ends.extend(ends)
        if self._room > 0:
            self._room -= self._size
            self._kept.append(b"".join(held))
        else:
            self._scratch.write(held)
        self._firsts.append(len(self._ends))
        self._offsets.append(begin + self._size)
        self._held, self._size = [], 0

    def pieces(self, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the lines from number `begin` to before `end`, some at a time; all by default.

        Nothing may be added while they are read.
        """
        at, end = begin, len(self) if end is None else end
        firsts, stored = self._firsts, self._firsts[-1]
        while at < end and at < stored:
            chunk = bisect_right(firsts, at) - 1
            after = min(end, firsts[chunk + 1])
            yield self._read(chunk, self._ends[at - 1] if at else 0, self._ends[after - 1])
            at = after
        if at < end:
            yield b"".join(self._held[at - stored : end - stored])

    def _read(self, chunk: int, start: int, stop: int) -> bytes:
        if chunk < len(self._kept):
            offset = self._offsets[chunk]
            return self._kept[chunk][start - offset : stop - offset]
        return self._scratch.read(start - self._offsets[len(self._kept)], stop - start)

    def line(self, number: int) -> bytes:
        """Return one line."""
        return next(self.pieces(number, number + 1))


# A record that is kept: its bytes, or its offset and length in the scratch file.
Kept = bytes | tuple[int, int]


class RecordSpool:
    """Records that are written once and read back in any order, each by what `add` returned.

    Args:
        limit: how many bytes to keep in memory; the records after that go to the scratch file.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._room = limit
        self._end = 0
        # Records that are not in the scratch file yet, and where the first of them is to stand.
        self._late: list[bytes] = []
        self._written = 0
        self._scratch = _Scratch()

    def add(self, record: bytes) -> Kept:
        """Keep a record. Raises `AgentsdirError` when the disk refuses."""
        if self._room > 0:
            self._room -= len(record)
            return bytes(memoryview(record))  # what an encoder returns often is far larger
        self._late.append(record)
        place = self._end, len(record)
        self._end += len(record)
        if self._end - self._written > CHUNK:
            self._flush()
        return place

    def _flush(self) -> None:
        self._scratch.write(self._late)
        self._late = []
        self._written = self._end

    def read(self, kept: Kept) -> bytes:
        """Return a record."""
        if isinstance(kept, bytes):
            return kept
        if kept[0] >= self._written:
            self._flush()
        return self._scratch.read(*kept)


class ByteSpool:
    """Bytes that come only once, made readable again.

    Args:
        stream: is read to its end.
        limit: how many bytes to keep in memory; if there are more, all go to the scratch file.
    """

    def __init__(self, stream: Readable | None = None, limit: int = LIMIT) -> None:
        self._limit = limit
        self._scratch = _Scratch()
        # What is in memory: all, or what is not in the scratch file yet.
        self._held: list[bytes] = []
        self._held_size = 0
        self._spilled = False
        while stream is not None and (piece := stream.read(CHUNK)):
            self.add(piece)

    def add(self, piece: bytes) -> None:
        """Append bytes. Raises `AgentsdirError` when the disk refuses."""
        self._held.append(piece)
        self._held_size += len(piece)
        if self._held_size > (CHUNK if self._spilled else self._limit):
            self._spill()

    def _spill(self) -> None:
        self._scratch.write(self._held)
        self._held, self._held_size = [], 0
        self._spilled = True

    def open(self) -> BinaryIO:
        """Return a stream over all bytes, at its start; one reader at a time."""
        if self._spilled:
            self._spill()
            return self._scratch.open()
        self._held = [b"".join(self._held)]
        return io.BytesIO(self._held[0])


class _Following(io.RawIOBase):
    """The first `size` bytes of a file, and then `data`, as one file."""

    def __init__(self, first: BinaryIO, size: int, data: bytes) -> None:
        self._first = first
        self._size = size
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origins = (0, self._at, self._size + len(self._data))
        self._at = max(0, origins[whence] + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._at < self._size:
            self._first.seek(self._at)
            piece = self._first.read(min(len(buffer), self._size - self._at))
        else:
            start = self._at - self._size
            piece = self._data[start : start + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def close(self) -> None:
        self._first.close()
        super().close()


# Where transcript bytes come from: a file, memory, or a stream that cannot be read twice.

HEAD = 64 * 1024
MAX_DOCUMENT = 256 * 1024 * 1024
"""Bytes that a transcript may have that is one JSON document, and is read whole."""
# Transcript lines are often longer than Python's default buffer; with it, reading costs threefold.
BUFFER = 256 * 1024


def heads(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the first 64 KiB of a file, then the whole rows in twice as much, and so on.

    The first row of a file may be longer than 64 KiB: then only what is yielded later has it whole.
    The last one yielded ends with the file, or within its first 64 MiB (`LINE_CAP`).

    Args:
        read: returns as many of the first bytes as it is given, or all of a shorter file.
    """
    size = HEAD
    head = read(size)
    yield head
    longest = head.rfind(b"\n") + 1
    while len(head) == size < LINE_CAP:
        size *= 2
        head = read(size)
        whole = len(head) if len(head) < size else head.rfind(b"\n") + 1
        if whole > longest:
            longest = whole
            yield head[:whole]


class Source:
    """Bytes with a name, openable more than once, one reader at a time.

    `name` is what `source.file` of blocks and findings say. `path` is None for bytes that stand in
    no file (standard input, a provider's memory). `begins_with` is the file, and how many bytes of
    it, that bytes of memory follow; None for all other sources.
    """

    __slots__ = ("_data", "_spool", "begins_with", "name", "path")

    def __init__(self, name: str, *, path: Path | None = None, data: bytes | None = None) -> None:
        self.name = name
        self.path = path
        self.begins_with: tuple[Path, int] | None = None
        self._data = data
        self._spool: ByteSpool | None = None

    @classmethod
    def following(cls, name: str, path: Path, size: int, data: bytes) -> Source:
        """Return the first `size` bytes of a file, followed by `data`."""
        source = cls(name, data=data)
        source.begins_with = path, size
        return source

    @classmethod
    def from_stream(cls, name: str, stream: Readable) -> Source:
        """Spool a stream that can be read only once (decision D30)."""
        return cls.from_spool(name, ByteSpool(stream))

    @classmethod
    def from_spool(cls, name: str, spool: ByteSpool) -> Source:
        """Return the bytes of a spool, to which nothing is added any more."""
        source = cls(name)
        source._spool = spool
        return source

    def open(self) -> BinaryIO:
        """Open for reading from the start. Raises `AgentsdirError` when that is impossible."""
        return self._open(BUFFER)

    def _open(self, buffer: int) -> BinaryIO:
        if self._data is not None and self.begins_with is not None:
            path, size = self.begins_with
            return io.BufferedReader(_Following(self._open_file(path, BUFFER), size, self._data))
        if self._data is not None:
            return io.BytesIO(self._data)
        if self._spool is not None:
            return self._spool.open()
        assert self.path is not None
        return self._open_file(self.path, buffer)

    def _open_file(self, path: Path, buffer: int) -> BinaryIO:
        try:
            return path.open("rb", buffering=buffer)
        except OSError as error:
            raise AgentsdirError(f"cannot read {self.name}: {error.strerror}") from error

    @property
    def size(self) -> int:
        """How many bytes there are now. Raises `AgentsdirError` as `open` does."""
        if self._data is not None:
            return len(self._data) + (self.begins_with[1] if self.begins_with else 0)
        if self.path is not None:
            try:
                return self.path.stat().st_size
            except OSError as error:
                raise AgentsdirError(f"cannot read {self.name}: {error.strerror}") from error
        with self.open() as stream:
            return stream.seek(0, io.SEEK_END)

    def head(self, size: int = HEAD) -> bytes:
        """Return the first `size` bytes. Raises `AgentsdirError` as `open` does."""
        return self._read(size)

    def read(self) -> bytes:
        """Return all bytes. Raises `AgentsdirError` as `open` does."""
        return self._read(-1)

    def document(self) -> bytes:
        """Return all bytes of a document, which has no lines that could be read one by one.

        Raises `AgentsdirError` as `open` does, and (kind ``too-large``) beyond `MAX_DOCUMENT`.
        """
        if self.size > MAX_DOCUMENT:
            raise AgentsdirError(
                f"{self.name} is one document of over {MAX_DOCUMENT} bytes", kind="too-large"
            )
        return self._read(-1)

    def _read(self, size: int) -> bytes:
        # With a small buffer, since a large one would be filled whatever is asked for.
        with self._open(io.DEFAULT_BUFFER_SIZE) as stream:
            try:
                return stream.read(size)
            except OSError as error:
                raise AgentsdirError(f"cannot read {self.name}: {error.strerror}") from error

    def __repr__(self) -> str:
        """Show the name."""
        return f"Source({self.name!r})"
