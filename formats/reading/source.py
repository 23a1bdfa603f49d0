"""Where transcript bytes come from: a file, memory, or a stream that cannot be read twice."""

from __future__ import annotations

import io
from typing import BinaryIO

from agentsdir.formats.errors import AgentsdirError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

HEAD = 64 * 1024
CHUNK = 1024 * 1024
# Transcript lines are often longer than Python's default buffer; with it, reading costs threefold.
BUFFER = 256 * 1024


class Spool:
    """Scratch bytes for one writer: in memory up to `limit`, then in an unlinked file."""

    def __init__(self, limit: int = 16 * 1024 * 1024) -> None:
        self._limit = limit
        self._file: BinaryIO = io.BytesIO()
        self._size = 0

    def write(self, data: bytes) -> None:
        """Append `data`. Raises `AgentsdirError` when the scratch disk refuses."""
        self._size += len(data)
        if self._limit and self._size > self._limit:
            import tempfile  # costs a third of a start-up, and small inputs never need it

            self._limit = 0
            memory, self._file = self._file, tempfile.TemporaryFile(buffering=CHUNK)  # noqa: SIM115
            assert isinstance(memory, io.BytesIO)
            self._file.write(memory.getbuffer())
        try:
            self._file.write(data)
        except OSError as error:
            raise AgentsdirError(f"cannot spool to a scratch file: {error.strerror}") from error

    def rewind(self) -> BinaryIO:
        """Return the bytes as a stream at its start; one reader at a time."""
        self._file.seek(0)
        return self._file


class _Unclosing(io.BufferedReader):
    """A reader over a spool that outlives `with`."""

    def close(self) -> None:
        """Keep the scratch file for the next reader."""


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
        self._spool: Spool | None = None

    @classmethod
    def from_stream(cls, name: str, stream: BinaryIO) -> Source:
        """Spool a stream that can be read only once (decision D30)."""
        source = cls(name)
        source._spool = Spool()
        while chunk := stream.read(CHUNK):
            source._spool.write(chunk)
        return source

    def open(self) -> BinaryIO:
        """Open for reading from the start. Raises `AgentsdirError` when that is impossible."""
        if self._data is not None:
            return io.BytesIO(self._data)
        if self._spool is not None:
            return _Unclosing(self._spool.rewind())  # type: ignore[arg-type]
        assert self.path is not None
        try:
            return self.path.open("rb", buffering=BUFFER)
        except OSError as error:
            raise AgentsdirError(f"cannot read {self.name}: {error.strerror}") from error

    def head(self, size: int = HEAD) -> bytes:
        """Return the first `size` bytes."""
        with self.open() as stream:
            return stream.read(size)

    def __repr__(self) -> str:
        """Show the name."""
        return f"Source({self.name!r})"
