"""A file that a client is writing: what was added to it, and whether it is still the same one.

The client may append, cut off the end, replace the file, or move it. This looks when it is
asked to, holds nothing open, and knows nothing of what the lines mean (docs/reading.md,
"Following").
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.rows import LINE_CAP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


# How much before the place that was read to must still be there. A client that takes a row back
# looks for it in the last 64 KiB.
EDGE = 64 * 1024
_CHUNK = 1024 * 1024
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_ABSENT = (FileNotFoundError, NotADirectoryError)


class Look(Enum):
    """What a look at the file found."""

    ABSENT = "not there"
    SAME = "as it was"
    GREW = "more of the same"
    CHANGED = "to be read again from its start"


class _Stamp(NamedTuple):
    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Stamp:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class Tail:
    """The complete lines of a growing file, in pieces.

    Memory is bounded by one line, and that by `cap` bytes.

    Args:
        path: where the file is, or will be.
    """

    def __init__(self, path: Path, *, cap: int = LINE_CAP) -> None:
        self.path = path
        self._cap = cap
        self.rewind()

    def rewind(self) -> None:
        """Begin at the start of the file again."""
        self._stamp: _Stamp | None = None
        self._read = 0
        self._edge = b""
        self._partial: list[bytes] = []
        self._length = 0  # of the line that has no end yet; its bytes are kept up to the cap

    def begin_at(self, offset: int) -> bool:
        """Begin at a place that was read before; return False where no line begins there.

        Raises `OSError` when the system refuses.
        """
        self.rewind()
        start = max(0, offset - EDGE)
        with _opened(self.path) as descriptor:
            edge = os.pread(descriptor, offset - start, start)
        if len(edge) < offset - start or not edge.endswith(b"\n"):
            return False
        self._read, self._edge = offset, edge
        return True

    @property
    def inode(self) -> tuple[int, int] | None:
        """The file that was read last."""
        return None if self._stamp is None else self._stamp[:2]

    def is_at(self, path: Path) -> bool:
        """Tell whether the file that was read last stands at `path`."""
        try:
            return self._stamp is not None and _Stamp.of(path.stat())[:2] == self.inode
        except OSError:
            return False

    def look(self) -> Look:
        """Say what became of the file since it was read. Raises `AgentsdirError` if refused."""
        try:
            return self._compare(self.path.stat())
        except _ABSENT:
            return Look.ABSENT
        except OSError as error:
            if error.errno == errno.ELOOP:  # links in a circle lead to no file
                return Look.ABSENT
            raise self._refused(error) from error

    def _compare(self, status: os.stat_result) -> Look:
        now, before = _Stamp.of(status), self._stamp
        if not stat.S_ISREG(status.st_mode):
            return Look.ABSENT
        if before is None:
            return Look.GREW
        if now == before:
            return Look.SAME
        if now[:2] != before[:2] or now.size <= self._read or not self._has_edge():
            # Of the same size and newer: written over in place, or merely touched.
            return Look.CHANGED
        return Look.GREW

    def find(self, folders: Iterable[Path]) -> bool:
        """Look for the file that was read in other folders; follow it there."""
        if self._stamp is None:
            return False
        for folder in folders:
            try:
                with os.scandir(folder) as entries:
                    moved = [entry.name for entry in entries if entry.inode() == self._stamp.inode]
            except OSError:
                continue
            for name in moved:
                before, self.path = self.path, folder / name
                if self._is_read_file():
                    return True
                self.path = before
        return False

    def _is_read_file(self) -> bool:
        try:
            status = self.path.stat()
            same = _Stamp.of(status)[:2] == self.inode and status.st_size >= self._read
            return same and self._has_edge()
        except OSError:
            return False

    def _has_edge(self) -> bool:
        with _opened(self.path) as descriptor:
            return self._is_edge_of(descriptor)

    def _is_edge_of(self, descriptor: int) -> bool:
        """Tell whether the bytes before the place that was read to are those that were read."""
        return os.pread(descriptor, len(self._edge), self._read - len(self._edge)) == self._edge

    def head(self, size: int) -> bytes:
        """Return the first bytes of the file as it is now; none where it is not there."""
        try:
            with _opened(self.path) as descriptor:
                return os.pread(descriptor, size, 0)
        except _ABSENT:
            return b""
        except OSError as error:
            raise self._refused(error) from error

    def lines(self) -> Iterator[bytes | int]:
        """Yield the complete lines that were added, with LF; the length of one over the cap.

        Raises `AgentsdirError` when the system refuses.
        """
        try:
            with _opened(self.path) as descriptor:
                yield from self._lines(descriptor)
        except _ABSENT:
            return
        except OSError as error:
            raise self._refused(error) from error

    def whole(self) -> bytes:
        """Return the file as it is now, which counts as read; nothing where it is not there.

        Raises `AgentsdirError` when the system refuses.
        """
        self.rewind()
        return b"".join(self._chunks())

    def _chunks(self) -> Iterator[bytes]:
        try:
            with _opened(self.path) as descriptor:
                self._stamp = _Stamp.of(os.fstat(descriptor))
                while chunk := os.pread(descriptor, _CHUNK, self._read):
                    self._advance(chunk)
                    yield chunk
        except _ABSENT:
            return
        except OSError as error:
            raise self._refused(error) from error

    def _advance(self, chunk: bytes) -> None:
        self._read += len(chunk)
        end = chunk[-EDGE:]
        self._edge = end if len(end) == EDGE else (self._edge + end)[-EDGE:]

    def reopen(self) -> BinaryIO | None:
        """Return the file that was read, or None where it is not there any more."""
        try:
            descriptor = os.open(self.path, _FLAGS)
        except OSError:
            return None
        if _Stamp.of(os.fstat(descriptor))[:2] == self.inode:
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
        return None

    def _lines(self, descriptor: int) -> Iterator[bytes | int]:
        now, before = _Stamp.of(os.fstat(descriptor)), self._stamp
        if before and (now[:2] != before[:2] or not self._is_edge_of(descriptor)):
            return  # replaced since the look; the next one says so
        self._stamp = now
        while chunk := os.pread(descriptor, _CHUNK, self._read):
            self._advance(chunk)
            yield from self._split(chunk)
        now = _Stamp.of(os.fstat(descriptor))
        if now.size == self._read:
            self._stamp = now

    def _split(self, chunk: bytes) -> Iterator[bytes | int]:
        begin = 0
        while end := chunk.find(b"\n", begin) + 1:
            if self._length or end - begin > self._cap:
                self._keep(chunk[begin:end])
                yield self.rest()
            else:
                yield chunk[begin:end]
            begin = end
        self._keep(chunk[begin:])

    def _keep(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > self._cap:
            self._partial.clear()
        elif piece:
            self._partial.append(piece)

    def rest(self) -> bytes | int:
        """Take what stands after the last complete line; its length where it is over the cap."""
        line: bytes | int = b"".join(self._partial) if self._length <= self._cap else self._length
        self._partial.clear()
        self._length = 0
        return line

    def _refused(self, error: OSError) -> AgentsdirError:
        return AgentsdirError(f"cannot read {self.path}: {error.strerror}", kind="unreadable")


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, _FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
