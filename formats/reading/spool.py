"""Scratch bytes: in memory while they are few, in an unlinked file when they are not."""

from __future__ import annotations

import io
from typing import BinaryIO

from agentsdir.formats.errors import AgentsdirError

CHUNK = 1024 * 1024
LIMIT = 16 * CHUNK


class Spool:
    """One writer first, then any number of readers, one at a time.

    Args:
        limit: how many bytes to keep in memory.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._held = bytearray()
        self._file: io.FileIO | None = None

    def write(self, data: bytes) -> None:
        """Append `data`. Raises `AgentsdirError` when the scratch disk refuses."""
        self._held += data
        if len(self._held) > self._limit:
            self._spill()

    def _spill(self) -> None:
        try:
            if self._file is None:
                import tempfile  # costs a third of a start-up, and small inputs never need it

                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115, lives with us
                self._limit = CHUNK
            with memoryview(self._held) as view:
                written = 0
                while written < len(view):
                    written += self._file.write(view[written:])
        except OSError as error:
            raise AgentsdirError(f"cannot spool to a scratch file: {error.strerror}") from error
        self._held.clear()

    def open(self) -> BinaryIO:
        """Return a stream over all bytes, at its start. Closing it keeps the spool."""
        if self._file is None:
            return io.BytesIO(self._held)
        self._spill()
        self._file.seek(0)
        return _Unclosing(self._file, CHUNK)

    def __del__(self) -> None:
        """Close the scratch file."""
        if self._file is not None:
            self._file.close()


class _Unclosing(io.BufferedReader):
    """A reader that leaves the file open for the next one."""

    def close(self) -> None:
        """Do nothing."""
