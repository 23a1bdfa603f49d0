"""Files packed into a tar, and unpacked from a stranger's (docs/moving.md, "Bundles").

What an agent's JSON document carries of them is in `saved_files`.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, cast
from unicodedata import normalize

from agentsdir.formats.errors import AgentsdirError, Invalid, NotRecorded
from agentsdir.formats.store.layout import DIRECTORY_MODE, FILE_MODE, checked_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentsdir.formats.source import Readable, Source


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
            entry.size = files[name].size
            with files[name].open() as data:
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


class Unpacking:
    """Files of a stranger that are written into an empty folder of ours, each name checked.

    Its methods raise `Invalid` (kind ``bad-bundle``) for a name that leads outside, that stands
    twice, also in another case or form of Unicode, and for what is larger than the limits; the
    caller removes what was written by then.
    """

    def __init__(self, folder: Path, limits: Limits = LIMITS) -> None:
        self._folder = folder
        self._limits = limits
        self._left = limits.size
        self._seen: set[str] = set()

    def make_folder(self, name: str) -> None:
        """Make a folder."""
        _make_folders(self._folder, self._placed(name))

    def write(self, name: str, data: Readable) -> None:
        """Write a file."""
        path = self._placed(name)
        _make_folders(self._folder, path.parent)
        with os.fdopen(_create(path), "wb") as written:
            while piece := data.read(_CHUNK):
                self._left -= len(piece)
                if self._left < 0:
                    raise bad_bundle(f"its files have more than {self._limits.size} bytes")
                written.write(piece)

    def _placed(self, name: str) -> Path:
        try:
            name = checked_name(name)
        except Invalid as error:
            raise bad_bundle(error.message) from error
        # Many systems take two such names for one.
        same = normalize("NFC", normalize("NFC", name).casefold())
        if same in self._seen:
            raise bad_bundle(f"{name!r} stands twice in it, perhaps in another case or form")
        self._seen.add(same)
        if len(self._seen) > self._limits.entries:
            raise bad_bundle(f"it has more than {self._limits.entries} entries")
        return self._folder / name


def unpack(stream: Readable, folder: Path, limits: Limits = LIMITS) -> None:
    """Take files out of a tar, gzipped or not, into an empty folder of ours.

    Raises `Invalid` (kind ``bad-bundle``) for what is no tar, holds anything but plain files and
    folders, and what `Unpacking` raises; the caller removes what was taken out by then.
    """
    head = stream.read(len(_GZIP))
    again: Any = Again(head, stream)
    try:
        with tarfile.open(
            fileobj=again,
            mode="r|gz" if head == _GZIP else "r|",
            tarinfo=_Entry,
            bufsize=_CHUNK,
        ) as archive:
            _take(archive, Unpacking(folder, limits))
    except _UNREADABLE as error:
        raise bad_bundle(f"it is no tar that can be read: {error}") from error
    except OSError as error:
        raise bad_bundle(f"it cannot be unpacked: {error.strerror or error}") from error


def _take(archive: tarfile.TarFile, into: Unpacking) -> None:
    # It would keep every header for as long as it is open.
    remembered: list[tarfile.TarInfo] = vars(archive)["members"]
    while (entry := archive.next()) is not None:
        remembered.clear()
        if entry.isdir():
            into.make_folder(entry.name)
            continue
        if not entry.isreg() or entry.issparse() or entry.size < 0:
            raise bad_bundle(f"{entry.name!r:.200} is neither a plain file nor a folder")
        data = archive.extractfile(entry)
        assert data is not None
        with data:
            into.write(entry.name, data)


class _Entry(tarfile.TarInfo):
    """A header that is looked at before what it announces is read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type == tarfile.XGLTYPE:
            raise bad_bundle("it has a header for all entries")
        if entry.type in _EXTENDED and entry.size > _MAX_HEADER:
            raise bad_bundle(f"it has a header of {entry.size} bytes")
        return entry


class Again:
    """A stream whose first bytes were read already."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes."""
        piece, self._head = self._head[:size], self._head[size:]
        return piece + self._rest.read(size - len(piece)) if len(piece) < size else piece


def bad_bundle(reason: str, hint: str | None = None) -> Invalid:
    """Return the error of a bundle that is not taken."""
    return Invalid(f"the bundle is not taken: {reason}", hint=hint, kind="bad-bundle")


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
