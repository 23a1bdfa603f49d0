"""Where transcript bytes come from: a file, memory, or a stream that cannot be read twice."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.reading.lines import LINE_CAP
from agentsdir.formats.reading.spool import ByteSpool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.formats.reading.spool import Readable

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
    no file (standard input, a provider's memory).
    """

    __slots__ = ("_data", "_spool", "name", "path")

    def __init__(self, name: str, *, path: Path | None = None, data: bytes | None = None) -> None:
        self.name = name
        self.path = path
        self._data = data
        self._spool: ByteSpool | None = None

    @classmethod
    def from_stream(cls, name: str, stream: Readable) -> Source:
        """Spool a stream that can be read only once (decision D30)."""
        source = cls(name)
        source._spool = ByteSpool(stream)
        return source

    def open(self) -> BinaryIO:
        """Open for reading from the start. Raises `AgentsdirError` when that is impossible."""
        if self._data is not None:
            return io.BytesIO(self._data)
        if self._spool is not None:
            return self._spool.open()
        assert self.path is not None
        try:
            return self.path.open("rb", buffering=BUFFER)
        except OSError as error:
            raise AgentsdirError(f"cannot read {self.name}: {error.strerror}") from error

    @property
    def size(self) -> int:
        """How many bytes there are now. Raises `AgentsdirError` as `open` does."""
        if self._data is not None:
            return len(self._data)
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
        with self.open() as stream:
            try:
                return stream.read(size)
            except OSError as error:
                raise AgentsdirError(f"cannot read {self.name}: {error.strerror}") from error

    def __repr__(self) -> str:
        """Show the name."""
        return f"Source({self.name!r})"
