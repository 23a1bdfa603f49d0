"""Files and folders of a client's own store, which the client writes at the same time."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from agentsdir.formats.errors import AgentsdirError, Invalid, ProviderError, UnsafePath
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from pathlib import Path

    from agentsdir.adapters.protocol import Process, Refuse


def check_closed(opened: Iterable[tuple[str, Process]], native_id: str) -> None:
    """Raise `ProviderError` (kind ``session-open``) if a client has a session open.

    Args:
        opened: the ids of open sessions, each with its client.
    """
    for one, client in opened:
        if one == native_id:
            raise ProviderError(
                f"session {native_id} is open in another client, process {client.pid}",
                hint="end it there first; two clients would lose each other's answers",
                kind="session-open",
            )


# New files: made in one step, and never over a file of the client's.
#
# Nothing is written behind a link, in a folder of another user, or outside the store.

_CHUNK = 1024 * 1024


def is_there(
    path: Path,
    saved: Source,
    is_continuation: Callable[[Source, Source], bool] | None = None,
    compared: Container[tuple[str, Path]] = (),
) -> bool:
    """Tell whether a saved file is in its place already; an empty file counts as none.

    Args:
        path: the place.
        saved: the saved file.
        is_continuation: tells whether the second of two sources continues the first; None for a
            file that the client may rewrite.
        compared: names of saved files with the places where they are known to be continued.

    Raises `UnsafePath` for what is no regular file, and `Invalid` (kind ``transcript-differs``) for
    a file that does not continue the saved one.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UnsafePath(f"{path} is no regular file: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UnsafePath(f"{path} is no regular file")
    if not status.st_size:
        return not size_of(saved)
    if is_continuation is None or (saved.name, path) in compared:
        return True
    if not is_continuation(saved, Source(str(path), path=path)):
        raise Invalid(
            f"{path} is shorter than the saved transcript, or differs from it",
            hint="nothing was overwritten; compare the two, and move that one away",
            kind="transcript-differs",
        )
    return True


def begins_with(saved: Source, present: Source) -> bool:
    """Tell whether `present` begins with all bytes of `saved`."""
    with saved.open() as one, present.open() as other:
        while piece := one.read(_CHUNK):
            here = b""
            while len(here) < len(piece) and (more := other.read(len(piece) - len(here))):
                here += more
            if here != piece:
                return False
    return True


def make_folders(storage: Path, folder: Path) -> None:
    """Make the missing folders from the storage on, which may itself be behind a link.

    Raises `UnsafePath`, and `AgentsdirError` where the system refuses.
    """
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


def write_new(path: Path, source: Source, *, lines: bool, more: Iterable[bytes] = ()) -> None:
    """Make a new file of the saved bytes and `more`.

    Args:
        path: the new file, in an existing folder.
        source: the saved bytes.
        lines: whether the file is of lines, so that the last one gets an end.
        more: lines to add.

    Raises `Invalid` (kind ``transcript-differs``) when another process made it meanwhile, and
    `AgentsdirError` where the system refuses.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as stream, source.open() as saved:
            last = b"\n"
            while piece := saved.read(_CHUNK):
                stream.write(piece)
                last = piece[-1:]
            if lines and last != b"\n":
                # Some clients append to the open line, and lose both records.
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
    """Give a file its name; only an empty file of that name is replaced."""
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


def size_of(source: Source) -> int:
    """Return how many bytes a source has."""
    with source.open() as stream:
        return stream.seek(0, os.SEEK_END)


def names_in(folder: Path, refuse: Refuse) -> list[str]:
    """Return the names in a folder, sorted; `refuse` is called for a folder that cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError as error:
        refuse(error)
        return []


def ignore(_error: OSError) -> None:
    """Take the error of a folder that cannot be read, and do nothing: nothing is found there."""
