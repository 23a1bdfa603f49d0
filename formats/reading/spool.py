"""Scratch bytes: in memory while they are few, in an unlinked file when they are not."""

from __future__ import annotations

import io
import os
from typing import BinaryIO

from agentsdir.formats.errors import AgentsdirError

CHUNK = 1024 * 1024
# The pieces are as loose in memory as their maker left them, so few are kept there.
LIMIT = 4 * CHUNK
GATHERED = 512  # pieces per system call; POSIX allows 1024


class Spool:
    """One writer first, then any number of readers, one at a time.

    Args:
        limit: how many bytes to keep in memory.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._held = 0
        self._file: io.FileIO | None = None

    def write(self, data: bytes) -> None:
        """Append `data`. Raises `AgentsdirError` when the scratch disk refuses."""
        self._pieces.append(data)
        self._held += len(data)
        if self._held > self._limit:
            self._spill()

    def _spill(self) -> None:
        try:
            if self._file is None:
                import tempfile  # costs a third of a start-up, and small inputs never need it

                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115, lives with us
                self._limit = CHUNK
            for at in range(0, len(self._pieces), GATHERED):
                _write_all(self._file.fileno(), self._pieces[at : at + GATHERED])
        except OSError as error:
            raise AgentsdirError(f"cannot spool to a scratch file: {error.strerror}") from error
        self._pieces.clear()
        self._held = 0

    def open(self) -> BinaryIO:
        """Return a stream over all bytes, at its start. Closing it keeps the spool."""
        if self._file is None:
            return io.BytesIO(b"".join(self._pieces))
        self._spill()
        self._file.seek(0)
        return _Unclosing(self._file, CHUNK)

    def __del__(self) -> None:
        """Close the scratch file."""
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
