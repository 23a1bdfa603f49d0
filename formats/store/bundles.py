"""Files packed into a tar, and unpacked from a stranger's (docs/moving.md, "Bundles")."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, cast

from agentsdir.formats.errors import AgentsdirError, Invalid, NotRecorded
from agentsdir.formats.store.layout import DIRECTORY_MODE, FILE_MODE, checked_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentsdir.formats.source import Source


GZIPPED = (".tar.gz", ".tgz")
PACKED = (".tar", *GZIPPED)
_GZIP = b"\x1f\x8b"
_CHUNK = 1024 * 1024
_LEVEL = 6
# A name and what little else our own headers say; a larger one is read into memory whole.
_MAX_HEADER = 16 * 1024
_EXTENDED = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


_UNREADABLE = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    RecursionError,
    ValueError,
    OverflowError,
)


class Limits(NamedTuple):
    """How much is taken out of a bundle: entries, and bytes of all files together."""

    entries: int = 100_000
    size: int = 4 * 1024**3


LIMITS = Limits()


def pack(files: Mapping[str, Source], stream: BinaryIO, moment: int, *, gzipped: bool) -> None:
    """Write a tar whose bytes follow from the files and `moment` (epoch seconds) alone.

    Raises `AgentsdirError` when the system refuses.
    """
    try:
        if gzipped:
            with gzip.GzipFile("", "wb", _LEVEL, stream, moment) as packed:
                _pack(files, cast("IO[bytes]", packed), moment)
        else:
            _pack(files, stream, moment)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AgentsdirError(f"cannot write the tar: {error.strerror or error}") from error


def _pack(files: Mapping[str, Source], stream: IO[bytes], moment: int) -> None:
    written = cast("IO[bytes]", _Written(stream))
    with tarfile.TarFile(
        mode="w", fileobj=written, format=tarfile.PAX_FORMAT, copybufsize=_CHUNK
    ) as archive:
        folders: set[str] = set()
        for name in sorted(files):
            for folder in [str(above) for above in reversed(Path(name).parents)][1:]:
                if folder not in folders:
                    folders.add(folder)
                    archive.addfile(_entry(folder, tarfile.DIRTYPE, DIRECTORY_MODE, moment))
            entry = _entry(name, tarfile.REGTYPE, FILE_MODE, moment)
            with files[name].open() as data:
                entry.size = data.seek(0, os.SEEK_END)
                data.seek(0)
                archive.addfile(entry, data)


class _Written:
    """A stream that is written to from here on, whether or not it knows its place."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.write = stream.write

    def tell(self) -> int:
        """Return where the tar begins."""
        return 0


def _entry(name: str, kind: bytes, mode: int, moment: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, moment
    return entry


def write_folder(files: Mapping[str, Source], folder: Path) -> None:
    """Write files below a folder that is new or empty; all of them, or none.

    Raises `NotRecorded` when the system refuses, or something stands in the folder.
    """
    temporary = folder.with_name(f".{folder.name}.{os.urandom(6).hex()}.tmp")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(DIRECTORY_MODE)
        for name, source in files.items():
            path = temporary / name
            _make_folders(temporary, path.parent)
            with source.open() as data, os.fdopen(_create(path), "wb") as stream:
                shutil.copyfileobj(data, stream, _CHUNK)
        temporary.rename(folder)
    except OSError as error:
        raise NotRecorded(f"cannot write to {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _make_folders(top: Path, folder: Path) -> None:
    """Make a folder below `top` and those above it; `parents` of `mkdir` would make them wide."""
    for above in (*reversed(folder.relative_to(top).parents), folder.relative_to(top)):
        (top / above).mkdir(DIRECTORY_MODE, exist_ok=True)


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, FILE_MODE)


def unpack(stream: BinaryIO, folder: Path, limits: Limits = LIMITS) -> None:
    """Take files out of a tar, gzipped or not, into an empty folder of ours.

    Raises `Invalid` (kind ``bad-bundle``) for what is no tar, holds anything but plain files and
    folders, names a place twice or outside, or is larger than the limits; the caller removes what
    was taken out by then.
    """
    head = stream.read(len(_GZIP))
    again: Any = _Again(head, stream)
    try:
        with tarfile.open(
            fileobj=again,
            mode="r|gz" if head == _GZIP else "r|",
            tarinfo=_Entry,
            bufsize=_CHUNK,
        ) as archive:
            _take(archive, folder, limits)
    except _UNREADABLE as error:
        raise _bad(f"it is no tar that can be read: {error}") from error
    except OSError as error:
        raise _bad(f"it cannot be unpacked: {error.strerror or error}") from error


def _take(archive: tarfile.TarFile, folder: Path, limits: Limits) -> None:
    seen: set[str] = set()
    left = limits.size
    # It would keep every header for as long as it is open.
    remembered: list[tarfile.TarInfo] = vars(archive)["members"]
    while (entry := archive.next()) is not None:
        remembered.clear()
        try:
            name = checked_name(entry.name)
        except Invalid as error:
            raise _bad(error.message) from error
        if name in seen:
            raise _bad(f"{name!r} stands twice in it")
        seen.add(name)
        if len(seen) > limits.entries:
            raise _bad(f"it has more than {limits.entries} entries")
        path = folder / name
        _make_folders(folder, path if entry.isdir() else path.parent)
        if entry.isdir():
            continue
        if not entry.isreg() or entry.issparse():
            raise _bad(f"{name!r} is neither a plain file nor a folder")
        left -= entry.size
        if left < 0 or entry.size < 0:
            raise _bad(f"its files have more than {limits.size} bytes")
        data = archive.extractfile(entry)
        assert data is not None
        with data, os.fdopen(_create(path), "wb") as written:
            shutil.copyfileobj(data, written, _CHUNK)


class _Entry(tarfile.TarInfo):
    """A header that is looked at before what it announces is read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type == tarfile.XGLTYPE:
            raise _bad("it has a header for all entries")
        if entry.type in _EXTENDED and entry.size > _MAX_HEADER:
            raise _bad(f"it has a header of {entry.size} bytes")
        return entry


class _Again:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes."""
        piece, self._head = self._head[:size], self._head[size:]
        return piece + self._rest.read(size - len(piece)) if len(piece) < size else piece


def _bad(reason: str) -> Invalid:
    return Invalid(f"the bundle is not taken: {reason}", kind="bad-bundle")


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name when the block is over, and nothing when it fails.

    Raises `NotRecorded` when something stands there, or the system refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        with os.fdopen(_create(temporary), "wb") as stream:
            yield stream
        os.link(temporary, path)
    except OSError as error:
        raise NotRecorded(f"cannot write {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
