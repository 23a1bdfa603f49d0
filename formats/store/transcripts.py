"""Raw transcripts of providers, kept byte for byte, and the recorded streams of turns."""

from __future__ import annotations

import io
import os
import re
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.formats.errors import Invalid, NotRecorded, UnsafePath
from agentsdir.formats.source import BUFFER, Source
from agentsdir.formats.store import stamps
from agentsdir.formats.store.files import entries, make_folder
from agentsdir.formats.store.layout import (
    FILE_MODE,
    TEMPORARY,
    open_plain,
    open_sized,
    read_bytes,
)
from agentsdir.formats.store.stamps import Stamp, TranscriptStamp, read_stamps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.layout import AgentPaths


# Raw provider transcripts, kept byte for byte under their native paths (decision D7).

CHUNK = 1024 * 1024
LEAST_CHUNK = 64 * 1024
"""The smallest `chunk` that counts: each chunk costs a digest."""
STREAM = "stream"
"""The role of a recorded stream (SPEC.md, "Recorded streams")."""

_STREAM_NAME = r"turn-[1-9][0-9]*(-[1-9][0-9]*)?\.stream"


class Digest:
    """The digests of a file's pieces of `CHUNK` bytes, of which the digest of the file is made.

    Args:
        chunks: the digests of the whole pieces that the bytes follow which `update` is given.
        chunk: bytes in a piece; 0 for a file that is one piece, of any size.
    """

    def __init__(self, chunks: Sequence[bytes] = (), chunk: int = CHUNK) -> None:
        self._done = list(chunks)
        self._chunk = chunk
        self._piece = sha256()
        self._length = 0
        self.size = len(self._done) * chunk

    def update(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        self.size += len(data)
        while self._chunk and self._length + len(data) > self._chunk:
            room = self._chunk - self._length
            self._piece.update(memoryview(data)[:room])
            self._done.append(self._piece.digest())
            self._piece, self._length = sha256(), 0
            data = data[room:]
        self._piece.update(data)
        self._length += len(data)

    @property
    def chunks(self) -> tuple[bytes, ...]:
        """The digest of each piece; of an empty file, one."""
        return (*self._done, self._piece.digest())

    def hexdigest(self) -> str:
        """Return the digest of the file (SPEC.md, "Transcripts")."""
        return digest_of(self.chunks)


def digest_of(chunks: Sequence[bytes]) -> str:
    """Return the digest of a file from those of its pieces; a file of one piece has the piece's."""
    return chunks[0].hex() if len(chunks) == 1 else _joined(chunks)


def _joined(chunks: Sequence[bytes]) -> str:
    return sha256(b"".join(chunks)).hexdigest()


def chunk_of(entry: Mapping[str, Any]) -> int:
    """Return the `chunk` of a `transcript.synced` entry in bytes; 0 for none that is believed."""
    chunk = entry.get("chunk")
    return chunk if type(chunk) is int and chunk >= LEAST_CHUNK else 0


class Synced(NamedTuple):
    """One file of a `transcript.synced` event: its size in bytes, and its digest.

    `rewritten` is whether the client wrote it anew; `grown_from` is the size that the log knew of
    it, and 0 then.
    """

    path: str
    role: str
    size: int
    sha256: str
    rewritten: bool = False
    grown_from: int = 0

    def as_entry(self) -> dict[str, Any]:
        """Return what the event says of the file."""
        entry = {"path": self.path, "role": self.role, "size": self.size, "sha256": self.sha256}
        if self.size > CHUNK:
            entry["chunk"] = CHUNK
        return {**entry, "rewritten": True} if self.rewritten else entry


def store_path(paths: AgentPaths, native: str) -> Path:
    """Return where a native relative path is kept.

    Raises `UnsafePath` for one that is absolute, empty, or could lead out of the folder.
    """
    parts = PurePosixPath(native).parts
    safe = (
        native
        and not native.startswith("/")
        and "\\" not in native
        and native.isprintable()
        and all(part not in ("..", ".") and not part.startswith(".tmp-") for part in parts)
        and parts not in ((), ("manifest.json",))
    )
    if not safe:
        raise UnsafePath(f"{native!r} cannot name a stored transcript")
    path = paths.transcripts.joinpath(*parts)
    for folder in path.parents[: len(parts)]:
        if folder.is_symlink():
            raise UnsafePath(f"{folder} is a link, which could lead out of the agent's folder")
    return path


def check_links(paths: AgentPaths) -> None:
    """Raise `UnsafePath` for a link among the stored files, which could lead out of the folder."""
    for entry in entries(paths.transcripts):
        # What a folder with the name of a leftover holds is not looked at, and no writer makes one.
        if entry.is_symlink() or (entry.is_dir() and entry.name.startswith(TEMPORARY)):
            raise UnsafePath(f"{entry.path} is a link, or could hold one that leads elsewhere")


def store(
    paths: AgentPaths,
    native: str,
    role: str,
    source: Source,
    known: Mapping[str, Any] | None,
    disk: Disk,
    *,
    rewrite: bool = False,
) -> Synced | None:
    """Bring the stored copy of a transcript up to `source`, durably; None when it is there already.

    Only the new tail is written, after the stored bytes have been compared: the last chunk of them,
    where by their stamps the copy is what it was, and the client's file only longer.

    Args:
        known: the entry that the log has. A crash can leave the copy ahead of it.
        rewrite: make a whole new copy where the native file is another than the stored one. It
            takes the old one's place by `finish_rewrites`, when the log names it.

    Raises `Invalid` (kind ``transcript-differs``), overwriting nothing, when the native file is
    shorter than the stored one or differs from it; `NotRecorded` and `Uncertain` for the disk.
    """
    path = store_path(paths, native)
    stamp = read_stamps(paths).transcripts.get(native)
    try:
        found, seen = _extend(path, native, role, source, known, stamp, disk)
    except Invalid as error:
        if not (rewrite and error.kind == "transcript-differs"):
            raise
    else:
        if seen is not None and seen != stamp:
            stamps.keep(paths, {native: seen})
        return found
    return _copy_beside(path, native, role, source, disk)


def _extend(
    path: Path,
    native: str,
    role: str,
    source: Source,
    known: Mapping[str, Any] | None,
    stamp: TranscriptStamp | None,
    disk: Disk,
) -> tuple[Synced | None, TranscriptStamp | None]:
    """Return what is to be logged, if anything is, and the stamp of the copy."""
    recorded = known["size"] if known else None
    with source.open() as stream:
        try:
            with os.fdopen(open_plain(path), "rb", buffering=0) as stored:
                if stamp is not None and not is_believed(stored, known, stamp):
                    stamp = None
                if stamp is not None and stamp.native and stamp.native == _native(stream, source):
                    return None, stamp
                digest = _same_beginning(stored, stream, source, stamp, native, path)
            exists = True
        except FileNotFoundError:
            make_folder(path.parent, disk)
            digest, exists = Digest(), False
        rest = stream.read(CHUNK)
        grown = bool(rest) or not exists
        if grown:
            _append(path, rest, stream, digest, disk)
        stamp = _stamp(path, digest, _native(stream, source))
    if not grown and recorded == digest.size:
        return None, stamp
    found = Synced(native, role, digest.size, digest.hexdigest(), grown_from=recorded or 0)
    return found, stamp


def is_believed(
    stored: BinaryIO | io.FileIO, entry: Mapping[str, Any] | None, stamp: TranscriptStamp
) -> bool:
    """Tell whether a stored copy looks as when it was synced, and was what the log says then."""
    return (
        entry is not None
        and entry["size"] == stamp.stored.size
        and entry.get("chunk") == (CHUNK if len(stamp.chunks) > 1 else None)
        and entry["sha256"] == digest_of(stamp.chunks)
        and stamp.stored == Stamp.of(os.fstat(stored.fileno()))
    )


def _native(stream: BinaryIO, source: Source) -> Stamp | None:
    """Return how the client's own file looks; None where the bytes stand in no file of a client."""
    if source.path is None or source.begins_with is not None:
        return None
    return Stamp.of(os.fstat(stream.fileno()))


def _stamp(path: Path, digest: Digest, native: Stamp | None) -> TranscriptStamp | None:
    """Return the stamp of a copy that was just stored; None if it is not all of it any more."""
    stored = Stamp.of(path.lstat())
    if stored.size != digest.size:
        return None
    if native is not None and native.size != digest.size:
        native = None  # the client has written on
    return TranscriptStamp(stored, native, digest.chunks)


def _copy_beside(path: Path, native: str, role: str, source: Source, disk: Disk) -> Synced:
    """Write a whole new copy beside the stored one, under a name that says what is in it."""
    with suppress(FileNotFoundError):
        _beside(path, "").unlink()
    digest = Digest()
    with source.open() as stream:
        _append(_beside(path, ""), stream.read(CHUNK), stream, digest, disk)
    _beside(path, "").replace(_beside(path, digest.hexdigest()))
    disk.sync_folder(path.parent)
    return Synced(native, role, digest.size, digest.hexdigest(), rewritten=True)


def _beside(path: Path, digest: str) -> Path:
    return path.with_name(f"{TEMPORARY}{path.name}-{digest[:16] or 'new'}")


def unfinished_rewrites(
    paths: AgentPaths, synced: Mapping[str, Mapping[str, Any]]
) -> dict[Path, Path]:
    """Return the new copies that the log names and that are not in place yet, with their places."""
    found = {}
    for native, entry in synced.items():
        path = store_path(paths, native)
        copy = _beside(path, entry["sha256"])
        if os.path.lexists(copy) and not _flaw(copy, entry):
            found[copy] = path
    return found


def finish_rewrites(
    paths: AgentPaths, synced: Mapping[str, Mapping[str, Any]], disk: Disk
) -> list[str]:
    """Put the new copies that the log names in place; return the names of the files.

    The record that names them must be durable. Raises `NotRecorded` and `Uncertain`.
    """
    found = unfinished_rewrites(paths, synced)
    for copy, path in found.items():
        try:
            copy.replace(path)
        except OSError as error:
            raise NotRecorded(f"cannot write {path}: {error.strerror}") from error
        disk.sync_folder(path.parent)
    return [path.name for path in found.values()]


def _same_beginning(
    stored: io.FileIO,
    native: BinaryIO,
    source: Source,
    stamp: TranscriptStamp | None,
    name: str,
    path: Path,
) -> Digest:
    """Compare a copy with what is stored of it, from the last chunk on if that is enough."""
    digest = Digest()
    if stamp is not None and _has_grown(native, source, stamp, path):
        digest = Digest(stamp.chunks[:-1])
        stored.seek(digest.size)
        native.seek(digest.size)
    # A recorded transcript goes on from its own copy, which equals itself.
    is_itself = stamp is not None and source.begins_with == (path, stamp.stored.size)
    while piece := stored.read(CHUNK):
        if not is_itself and native.read(len(piece)) != piece:
            raise Invalid(
                f"the transcript {name} is shorter than its stored copy {path}, or differs from it",
                hint="nothing was overwritten; compare the two files",
                kind="transcript-differs",
            )
        digest.update(piece)
    if is_itself:
        native.seek(digest.size)
    if stamp is not None and digest.chunks[-1] != stamp.chunks[-1]:
        raise _damaged(path, "is not what was synced")
    return digest


def _has_grown(native: BinaryIO, source: Source, stamp: TranscriptStamp, path: Path) -> bool:
    """Tell whether a file is the one that was stored, longer: by its stamp, or the copy itself."""
    if source.begins_with is not None:
        return source.begins_with == (path, stamp.stored.size)
    now, before = _native(native, source), stamp.native
    return (
        now is not None
        and before is not None
        and now.inode == before.inode
        and now.size > before.size
    )


def _append(path: Path, piece: bytes, rest: BinaryIO, digest: Digest, disk: Disk) -> None:
    """Append `piece` and then all of `rest` to a copy, of which `digest` has seen all."""
    try:
        descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND)
    except FileNotFoundError:
        descriptor = _create(path)
        disk.sync_folder(path.parent)
    size = digest.size
    try:
        while piece:
            digest.update(piece)
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
            piece = rest.read(CHUNK)
        disk.sync_append(descriptor, path)
    except OSError as error:
        with suppress(OSError):  # what stays is the beginning of the tail, and is gone on from
            os.ftruncate(descriptor, size)
        raise NotRecorded(f"cannot write {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, FILE_MODE)
    except OSError as error:
        raise NotRecorded(f"cannot create {path}: {error.strerror}") from error


def load(paths: AgentPaths, natives: Iterable[str]) -> dict[str, bytes]:
    """Return the stored transcripts by native path; those that are missing are left out."""
    found = {}
    for native in natives:
        try:
            found[native] = read_bytes(store_path(paths, native))
        except FileNotFoundError:
            continue
    return found


def _stored(paths: AgentPaths) -> list[str]:
    """Return the native path of each regular file among the transcripts, sorted."""
    return [
        Path(entry.path).relative_to(paths.transcripts).as_posix()
        for entry in entries(paths.transcripts)
        if entry.is_file(follow_symlinks=False)
        and Path(entry.path) != paths.manifest
        and not entry.name.startswith(TEMPORARY)
    ]


def load_sound(
    paths: AgentPaths,
    synced: Mapping[str, dict[str, Any]],
    native_id: str,
    all_synced: Callable[[], Mapping[str, dict[str, Any]]],
) -> dict[str, Source]:
    """Return a session's stored transcripts, each of which must begin with what was last synced.

    One that the log does not know yet was stored just before a crash, and is as good as the others.
    Recorded streams are ours, not the provider's, and are left out.

    Args:
        synced: the entries of the session by native path, as the log has them.
        native_id: the session; what was synced under another id is left out.
        all_synced: returns the entries of all sessions.

    Raises `Invalid` (kind ``transcript-damaged``) for one that is missing or was changed: a session
    that went on without it would have lost its context in silence.
    """
    seen = read_stamps(paths).transcripts
    unsynced = [path for path in _stored(paths) if path not in synced and not is_stream(path)]
    if unsynced:
        synced = all_synced()
        unsynced = [path for path in unsynced if path not in synced]
    wanted = of_session(synced, native_id)
    found = {}
    for native in sorted([*unsynced, *wanted]):
        path = store_path(paths, native)
        entry = wanted.get(native)
        flaw = _flaw(path, entry, seen.get(native))
        if flaw and entry:
            raise _damaged(path, flaw)
        if not flaw:
            found[native] = Source(native, path=path)
    return found


def load_recorded(
    paths: AgentPaths, synced: Mapping[str, Mapping[str, Any]], *, streams: bool = False
) -> dict[str, Source]:
    """Return the stored transcripts as they were when last synced, and not a byte more.

    Args:
        synced: as for `load_sound`, whose errors this raises; perhaps of an earlier moment.
        streams: recorded streams, too.
    """
    found = {}
    seen = read_stamps(paths).transcripts
    for native, entry in sorted(synced.items()):
        if entry["role"] == STREAM and not streams:
            continue
        path = store_path(paths, native)
        if flaw := _flaw(path, entry, seen.get(native)):
            raise _damaged(path, flaw)
        whole = path.stat().st_size == entry["size"]
        found[native] = (
            Source(native, path=path) if whole else beginning(path, entry["size"], native)
        )
    return found


def load_as_they_stand(
    paths: AgentPaths, synced: Mapping[str, Mapping[str, Any]]
) -> dict[str, Source]:
    """Return the stored transcripts and streams as far as they were synced, damaged or not.

    Those that are missing are left out. Raises `UnsafePath`.
    """
    found = {}
    for native, entry in sorted(synced.items()):
        path = store_path(paths, native)
        with suppress(FileNotFoundError):
            found[native] = whole_file(path, native, entry["size"])
    return found


def whole_file(path: Path, name: str, most: int | None = None) -> Source:
    """Return a file as large as it is now, or the first `most` bytes of a larger one.

    Raises as `open_plain` does.
    """
    descriptor, size = open_sized(path)
    os.close(descriptor)
    return beginning(path, size if most is None else min(size, most), name)


def beginning(path: Path, size: int, name: str) -> Source:
    """Return the first `size` bytes of a file that may have grown since, or grow."""
    return _Beginning(path, size, name)


class _Beginning(Source):
    """The first bytes of a file that is only appended to; none is copied."""

    __slots__ = ("_file", "_size")

    def __init__(self, path: Path, size: int, name: str) -> None:
        super().__init__(name)
        self._file = path
        self._size = size

    def open(self) -> BinaryIO:
        """Open for reading from the start. Raises as `open_plain` does."""
        opened = os.fdopen(open_plain(self._file), "rb", buffering=0)
        return io.BufferedReader(_FirstBytes(opened, self._size), BUFFER)


class _FirstBytes(io.RawIOBase):
    """An open file that ends after `size` bytes."""

    def __init__(self, opened: io.FileIO, size: int) -> None:
        self._opened = opened
        self._size = size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = max(0, self._size - self._opened.tell())
        return self._opened.readinto(memoryview(buffer)[:left])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            offset, whence = self._size + offset, os.SEEK_SET
        return self._opened.seek(offset, whence)

    def close(self) -> None:
        self._opened.close()
        super().close()


def pieces(stream: BinaryIO | io.FileIO, size: int) -> Iterator[bytes]:
    """Yield the next `size` bytes of a stream, as far as there are any."""
    while size and (piece := stream.read(min(size, CHUNK))):
        yield piece
        size -= len(piece)


def _damaged(path: Path, flaw: str) -> Invalid:
    return Invalid(
        f"the stored transcript {path} {flaw}",
        hint="put it back from a copy; nothing was overwritten",
        kind="transcript-damaged",
    )


def of_session(synced: Mapping[str, dict[str, Any]], native_id: str) -> dict[str, dict[str, Any]]:
    """Return the entries of one native session's own transcripts; a recorded stream is ours."""
    return {
        path: entry
        for path, entry in synced.items()
        if entry["role"] != STREAM and entry.get("native") == native_id
    }


def _flaw(path: Path, entry: Mapping[str, Any] | None, stamp: TranscriptStamp | None = None) -> str:
    try:
        with os.fdopen(open_plain(path), "rb", buffering=0) as stored:
            if entry is None or (stamp is not None and is_believed(stored, entry, stamp)):
                return ""
            digest = digest_beginning(stored, entry)
    except FileNotFoundError:
        return "is missing"
    return "" if digest == entry["sha256"] else "is not what was synced"


def digest_beginning(stream: BinaryIO | io.FileIO, entry: Mapping[str, Any]) -> str:
    """Return the digest of what a `transcript.synced` entry is about, as far as a file has it."""
    chunk, left = chunk_of(entry), entry["size"]
    digest = Digest(chunk=chunk)
    while left and (piece := stream.read(min(left, CHUNK))):
        digest.update(piece)
        left -= len(piece)
    return _joined(digest.chunks) if chunk else digest.hexdigest()


def begins_as(paths: AgentPaths, native: str, size: int, digest: str) -> bool:
    """Tell whether the first `size` bytes of a stored copy are a file of this digest.

    As far as the stamp of the copy has the digests of its pieces, only the last piece is read.
    Raises as `open_plain` does.
    """
    stamp = read_stamps(paths).transcripts.get(native)
    with os.fdopen(open_plain(store_path(paths, native)), "rb", buffering=0) as stored:
        whole: tuple[bytes, ...] = ()
        if stamp is not None and stamp.stored == Stamp.of(os.fstat(stored.fileno())):
            whole = stamp.chunks[: max(0, size - 1) // CHUNK]
        found = Digest(whole)
        stored.seek(found.size)
        for piece in pieces(stored, size - found.size):
            found.update(piece)
    return found.size == size and found.hexdigest() == digest


def is_stream(native: str) -> bool:
    """Tell whether a path is that of a recorded stream, which a crash may leave unsynced."""
    return re.fullmatch(_STREAM_NAME, PurePosixPath(native).name) is not None


# Recorded streams: the events of one turn among the transcripts (SPEC.md, "Recorded streams").
#
# A stream is no transcript of the provider's: no provider is handed one, and nothing is lost with
# it that the log does not have.


class StreamFile:
    """A stream being written by the holder of `.turn`; no reader opens it before it is synced.

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
            digest = Digest()
            while piece := self._stream.read(CHUNK):
                digest.update(piece)
            return Synced(self.native, STREAM, digest.size, digest.hexdigest())
        except OSError as error:
            raise NotRecorded(f"cannot read back {self._path}: {error.strerror}") from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def remove(self) -> None:
        """Remove the file, which no record names. One that stays does no harm."""
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
            found = digest_beginning(opened, entry)
            opened.seek(0)
            if found == digest:
                return opened
    except OSError as error:
        opened.close()
        raise Invalid(f"it cannot be read: {error.strerror}") from error
    opened.close()
    raise Invalid("it is not what was recorded")
