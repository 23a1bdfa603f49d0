"""Recorded streams: the events of one turn among the transcripts (SPEC.md, "Recorded streams").

A stream is no transcript of the provider's: no provider is handed one, and nothing is lost with it
that the log does not have.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import file_digest
from typing import TYPE_CHECKING, Any, BinaryIO

from agentsdir.formats.directory.documents import make_folder
from agentsdir.formats.directory.layout import FILE_MODE, open_plain
from agentsdir.formats.directory.transcripts import STREAM, Synced, store_path
from agentsdir.formats.errors import Invalid, NotRecorded

if TYPE_CHECKING:
    from agentsdir.formats.directory.durability import Disk
    from agentsdir.formats.directory.layout import AgentPaths


class StreamFile:
    """A stream being written, by whoever holds `.turn`; nobody reads it before it is synced.

    Raises `NotRecorded` and `Uncertain` for the disk, as its methods do, and `UnsafePath` for a
    native id that cannot name a folder.
    """

    def __init__(self, paths: AgentPaths, native_id: str, turn: int, disk: Disk) -> None:
        self._disk = disk
        self.native = _free_name(paths, f"{native_id}/turn-{turn}")
        self._path = store_path(paths, self.native)
        make_folder(self._path.parent, disk)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._path, flags, FILE_MODE)
        except OSError as error:
            raise NotRecorded(f"cannot create {self._path}: {error.strerror}") from error
        self._stream = os.fdopen(descriptor, "r+b", buffering=0)
        try:
            disk.sync_folder(self._path.parent)
        except BaseException:
            self.close()
            raise

    def write(self, line: bytes) -> None:
        """Append one whole line, or nothing."""
        descriptor = self._stream.fileno()
        size = os.fstat(descriptor).st_size
        try:
            view = memoryview(line)
            while view:
                view = view[os.write(descriptor, view) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, size)
            raise NotRecorded(f"cannot write {self._path}: {error.strerror}") from error

    def finish(self) -> Synced:
        """Make the stream durable; return what a `transcript.synced` event says of it."""
        self._disk.sync_append(self._stream.fileno(), self._path)
        try:
            # What stands in the file counts: an interrupt may have come in the middle of `write`.
            self._stream.seek(0)
            digest = file_digest(self._stream, "sha256").hexdigest()
            return Synced(self.native, STREAM, self._stream.tell(), digest)
        except OSError as error:
            raise NotRecorded(f"cannot read back {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def remove(self) -> None:
        """Remove the file, of which nobody knows. One that stays is no harm."""
        with suppress(OSError):
            self._path.unlink()
            self._path.parent.rmdir()


def _free_name(paths: AgentPaths, stem: str) -> str:
    """Return the path of a new stream; a lost turn of the same number may have left its own."""
    native, number = f"{stem}.stream", 1
    while os.path.lexists(store_path(paths, native)):
        number += 1
        native = f"{stem}-{number}.stream"
    return native


def open_stream(paths: AgentPaths, entry: dict[str, Any]) -> BinaryIO:
    """Open a stream that is what its `transcript.synced` entry says.

    Raises `Invalid` with the reason when it is missing or anything else.
    """
    try:
        path, size, digest = store_path(paths, entry["path"]), entry["size"], entry["sha256"]
        opened = os.fdopen(open_plain(path), "rb")
    except FileNotFoundError:
        raise Invalid("it is missing") from None
    except (AttributeError, KeyError, TypeError) as error:
        raise Invalid("the log does not say which it is") from error
    try:
        if os.fstat(opened.fileno()).st_size == size:
            found = file_digest(opened, "sha256").hexdigest()
            opened.seek(0)
            if found == digest:
                return opened
    except OSError as error:
        opened.close()
        raise Invalid(f"it cannot be read: {error.strerror}") from error
    opened.close()
    raise Invalid("it is not what was recorded")
