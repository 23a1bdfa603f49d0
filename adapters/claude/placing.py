"""Putting saved transcripts where the real client finds them (seed: setupSessionTranscripts).

What stands in the client's store is the client's: a file is made, and never changed. Files get
their names in one step, the main transcript last, so that a session is there whole or not at all.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agentsdir.adapters.claude.dangling import answers
from agentsdir.adapters.claude.paths import MAX_NAME, host_paths
from agentsdir.formats.errors import AgentsdirError, Invalid, UnsafePath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from agentsdir.adapters.contract import SessionSpec
    from agentsdir.formats.reading.source import Source

_CHUNK = 1024 * 1024
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FLAT_CHILD = re.compile(r"agent-[A-Za-z0-9_-]{1,128}\.jsonl")
_TRANSCRIPT = ".jsonl"


class _Saved(NamedTuple):
    """A saved file, and where it belongs below the project's folder."""

    inner: tuple[str, ...]
    source: Source


def place(spec: SessionSpec, *, here: bool = False) -> list[Path]:
    """Put a session's saved files into the client's store; return what was written.

    A session that stands anywhere in the store already stays there: newer clients find it by its
    id from every folder. What it lacks of its side folder is written beside it.

    Args:
        here: into the folder of the working directory, wherever else the session may stand: older
            clients look there alone.

    Raises `Invalid` (kind ``transcript-differs``) where a transcript stands that does not go on
    from the saved one, `UnsafePath` for links and folders of other users, and `AgentsdirError`
    where the system refuses.
    """
    saved = _saved(spec)
    if not saved or saved[-1].inner != (f"{spec.native_id}{_TRANSCRIPT}",):
        return []
    paths = host_paths(spec.host, spec.cwd)
    folder = standing(paths.storage, paths.transcripts, spec.native_id, anywhere=not here)
    written = []
    for one in saved:
        path = folder.joinpath(*one.inner)
        if _is_there(path, one):
            continue
        _make_folders(paths.storage, path.parent)
        main = one is saved[-1]
        _write(path, one.source, answers(one.source, spec.now()) if main else iter(()))
        written.append(path)
    return written


def _saved(spec: SessionSpec) -> list[_Saved]:
    """Return the files of this session, the main transcript last.

    A session that was placed in several folders in its life may be saved under several: the
    longest copy is the latest one.
    """
    found: dict[tuple[str, ...], Source] = {}
    for path, source in spec.transcripts.items():
        inner = inner_path(path, spec.native_id)
        if inner and (inner not in found or _size(found[inner]) < _size(source)):
            found[inner] = source
    main = (f"{spec.native_id}{_TRANSCRIPT}",)
    return [_Saved(inner, found[inner]) for inner in sorted(found, key=lambda i: (i == main, i))]


def inner_path(path: str, native_id: str) -> tuple[str, ...]:
    """Return where a storage-relative file belongs below a project's folder; empty for nowhere.

    Only what is the session's own has a place: its transcript, its side folder, and old
    subagents' files, which stand beside it.
    """
    top, _, rest = path.partition("/")
    parts = tuple(rest.split("/")[1:])
    if top != "projects" or not parts or not UUID.fullmatch(native_id):
        return ()
    if any(not part or part.startswith(".") or not part.isprintable() for part in parts):
        return ()
    beside = len(parts) == 1
    own = parts == (f"{native_id}{_TRANSCRIPT}",) or (parts[0] == native_id and not beside)
    return parts if own or (beside and _FLAT_CHILD.fullmatch(parts[0])) else ()


def role_of(inner: tuple[str, ...]) -> str:
    """Return what a file below a project's folder is to its session (roles of `NativeFile`)."""
    name = inner[-1]
    if name.startswith("agent-") and name.endswith(_TRANSCRIPT):
        return "subagent"
    if name.endswith(".meta.json"):
        return "sidecar"
    return "main" if len(inner) == 1 else "output"


def role_at(path: str, native_id: str) -> str:
    """Return the same for a storage-relative path; empty for a file of no part in the session."""
    inner = inner_path(path, native_id)
    return role_of(inner) if inner else ""


def standing(storage: Path, folder: Path, native_id: str, *, anywhere: bool = True) -> Path:
    """Return the project folder that has the session, else the one that it belongs to.

    Args:
        folder: of the working directory. The hash in a name that was cut differs between the
            client's runtimes, so an existing one that begins the same is taken.
        anywhere: look in the folders of other working directories, too.
    """
    name = f"{native_id}{_TRANSCRIPT}"
    cut = folder.name[: MAX_NAME + 1] if len(folder.name) > MAX_NAME else None
    with suppress(OSError):
        present = sorted((storage / "projects").iterdir())
        like = [other for other in present if cut and other.name.startswith(cut)]
        for other in (folder, *like, *(present if anywhere else [])):
            with suppress(OSError):
                if (other / name).stat().st_size:
                    return other
        if like and folder not in like:
            return like[0]
    return folder


def _is_there(path: Path, saved: _Saved) -> bool:
    """Tell whether a file stands in place; raise unless it is, or goes on from, the saved one.

    What is no transcript is the client's to rewrite.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnsafePath(f"{path} is no regular file: {error.strerror}") from error
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UnsafePath(f"{path} is no regular file")
        if not status.st_size:  # some clients leave one behind; it says that nothing is here
            return not _size(saved.source)
        if path.suffix == _TRANSCRIPT and not _goes_on(stream, saved.source):
            raise Invalid(
                f"{path} is shorter than the saved transcript, or differs from it",
                hint="nothing was overwritten; compare the two, and move that one away",
                kind="transcript-differs",
            )
    return True


def _goes_on(stream: BinaryIO, source: Source) -> bool:
    with source.open() as saved:
        while piece := saved.read(_CHUNK):
            here = b""
            while len(here) < len(piece) and (more := stream.read(len(piece) - len(here))):
                here += more
            if here != piece:
                return False
    return True


def _make_folders(storage: Path, folder: Path) -> None:
    """Make what is missing of the folders from the storage on; it may itself be behind a link."""
    try:
        storage.mkdir(mode=0o700, parents=True, exist_ok=True)
        inner = folder.relative_to(storage)
        for part in (*reversed(inner.parents[:-1]), inner):
            path = storage / part
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode):
                raise UnsafePath(f"{path} is no folder; nothing is written behind a link")
            if status.st_uid != os.geteuid():
                raise UnsafePath(f"{path} belongs to another user; nothing is written there")
    except OSError as error:
        raise AgentsdirError(f"cannot make {error.filename}: {error.strerror}") from error


def _write(path: Path, source: Source, more: Iterator[bytes]) -> None:
    """Make a file with the saved bytes, a last line that ends, and then `more` lines."""
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as stream, source.open() as saved:
            last = b"\n"
            while piece := saved.read(_CHUNK):
                stream.write(piece)
                last = piece[-1:]
            if path.suffix == _TRANSCRIPT and last != b"\n":
                # Some clients append straight on, and lose the last record and their own.
                stream.write(b"\n")
            stream.writelines(more)
            stream.flush()
            os.fsync(stream.fileno())
        _name(temporary, path)
    except FileExistsError as error:
        raise Invalid(
            f"{path} was made by somebody else just now", kind="transcript-differs"
        ) from error
    except OSError as error:
        raise AgentsdirError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _name(temporary: Path, path: Path) -> None:
    """Give a file its name, in whose place nothing may stand but an empty file."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        if path.lstat().st_size:
            raise
        temporary.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(source: Source) -> int:
    with source.open() as stream:
        return stream.seek(0, os.SEEK_END)
