"""Whole files, replaced in one step, and when written bytes are durable."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.formats.errors import NotRecorded, Uncertain
from agentsdir.formats.store.layout import DIRECTORY_MODE, FILE_MODE, TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


# Whole files, replaced so that a reader or a crash finds the old one or the new one.


def replace_file(path: Path, data: bytes, disk: Disk | None) -> None:
    """Put `data` at `path` in one rename.

    Args:
        disk: makes file and folder durable before this returns. Derived files may do without
            (None): a reader sees by their log position that they are stale.

    Raises `NotRecorded` when nothing was changed, `Uncertain` when only an fsync failed.
    """
    replace_pieces(path, (data,), disk)


def replace_pieces(path: Path, pieces: Iterable[bytes], disk: Disk | None) -> None:
    """Put what `pieces` say at `path` in one rename, as `replace_file` does."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.urandom(6).hex()}")
    try:
        write_pieces(temporary, pieces, disk)
        temporary.replace(path)
    except OSError as error:
        _discard(temporary)
        raise NotRecorded(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        _discard(temporary)
        raise
    if disk is not None:
        disk.sync_folder(path.parent)


def _discard(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink()


def write_new(path: Path, data: bytes, disk: Disk | None) -> None:
    """Create a file that must not exist. Raises `OSError`, and `Uncertain` for a failed fsync."""
    write_pieces(path, (data,), disk)


def write_pieces(path: Path, pieces: Iterable[bytes], disk: Disk | None) -> None:
    """Create a file out of pieces, as `write_new` does."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
        if disk is not None:
            disk.sync(descriptor, path)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it. Raises `NotRecorded`.

    Links are removed, never followed; a file that another process removes meanwhile is no error.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            try:
                shutil.rmtree(path)
            except RecursionError:
                _remove_deep(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NotRecorded(f"cannot remove {path}: {error.strerror}") from error


def _remove_deep(path: Path) -> None:
    """Remove a folder that is nested deeper than Python calls itself."""
    folders = [path]
    for folder in folders:
        for entry in _sorted(folder):
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            else:
                Path(entry.path).unlink(missing_ok=True)
    for folder in reversed(folders):
        folder.rmdir()


def leftovers(folder: Path) -> list[Path]:
    """Return the temporary entries below `folder` that dead writers left, sorted.

    Links are not followed. While the folder's lock is not held, they may be a living writer's.
    """
    return [Path(entry.path) for entry in entries(folder) if entry.name.startswith(TEMPORARY)]


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield what stands below `folder`, sorted, a folder before what is in it.

    Links are not followed, nor is one in place of `folder`; leftovers are not looked into. A
    list of open folders, and no recursion: a hostile root may nest them deep.
    """
    if folder.is_symlink() or not folder.is_dir():
        return
    open_folders = [iter(_sorted(folder))]
    while open_folders:
        entry = next(open_folders[-1], None)
        if entry is None:
            open_folders.pop()
            continue
        yield entry
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(TEMPORARY):
            open_folders.append(iter(_sorted(Path(entry.path))))


def _sorted(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # it is gone, or the system refuses it
        return []


def make_folder(folder: Path, disk: Disk) -> None:
    """Create a private folder and its parents, durably. Raises `NotRecorded`, `Uncertain`."""
    try:
        if folder.is_dir():
            return
        if folder.parent != folder:
            make_folder(folder.parent, disk)
        folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise NotRecorded(f"cannot make {folder}: {error.strerror}") from error
    disk.sync_folder(folder.parent)


# When written bytes are made durable (SPEC.md, "Locks and durability").


class Durability:
    """What exit 0 promises: each event is on the disk, the command's last one is, or neither."""

    ALWAYS = "always"
    BATCH = "batch"
    NEVER = "never"
    ALL = (ALWAYS, BATCH, NEVER)


class Disk:
    """How one command makes its writes durable, and what the disk would not confirm.

    After a failed `fsync` it is unknown what the disk holds, and asking again would be answered
    with a lie: so an agent's folder that was not confirmed gets no further write from here.
    """

    def __init__(self, durability: str = Durability.ALWAYS) -> None:
        self.durability = durability
        self._commands = 0
        self._due: dict[Path, None] = {}
        self._afterwards: dict[Path, Callable[[], None]] = {}
        self._doubtful: dict[Path, str] = {}

    @property
    def waits(self) -> bool:
        """Whether what is appended becomes durable only when the command is through."""
        return self.durability == Durability.BATCH

    @property
    def is_in_command(self) -> bool:
        """Whether `synced_at_end` is at work, for whose end something can wait."""
        return self._commands > 0 or self.waits

    def sync_append(self, descriptor: int, path: Path) -> None:
        """Make what was appended to a file durable, now or when `synced_at_end` ends.

        Raises `Uncertain`; the caller must not try again.
        """
        if self.durability == Durability.ALWAYS:
            _sync(descriptor, path)
        elif self.waits:
            # Last touched, last synced: a log never names a transcript that is not there.
            self._due.pop(path, None)
            self._due[path] = None

    def sync(self, descriptor: int, path: Path) -> None:
        """Make a new file durable before its name is published. Raises `Uncertain`."""
        if self.durability != Durability.NEVER:
            _sync(descriptor, path)

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable. Raises `Uncertain`."""
        if self.durability != Durability.NEVER:
            _sync_path(folder, os.O_DIRECTORY)

    def afterwards(self, folder: Path) -> Callable[[], None] | None:
        """Return what `call_afterwards` was given for a folder, and is yet to be called."""
        return self._afterwards.get(folder)

    def call_afterwards(self, folder: Path, act: Callable[[], None]) -> None:
        """Have `synced_at_end` call `act` at its end, when what was appended is durable.

        What is derived must not be ahead of the log. There is one `act` for each folder.
        """
        self._afterwards[folder] = act

    @contextmanager
    def synced_at_end(self) -> Iterator[None]:
        """Make durable, when the block is over, what had to wait. Raises `Uncertain`.

        Blocks may be nested: each does what is to be done by then.
        """
        self._commands += 1
        try:
            yield
        except (NotRecorded, Uncertain):
            self._due, self._afterwards = {}, {}  # where the disk refuses, nothing more is written
            raise
        finally:
            self._commands -= 1
            due, self._due = self._due, {}
            for path in due:
                _sync_path(path, 0)
            afterwards, self._afterwards = self._afterwards, {}
            for act in afterwards.values():
                act()

    def doubt(self, folder: Path, error: Uncertain) -> None:
        """Remember that the disk would not confirm what is in an agent's folder."""
        self._doubtful[folder] = error.message

    def check(self, folder: Path) -> None:
        """Raise `Uncertain` for a folder that the disk would not confirm earlier."""
        if folder in self._doubtful:
            raise Uncertain(
                f"nothing more is written to {folder}: {self._doubtful[folder]}", hint=_HINT
            )


_HINT = "check the disk, then run `agentsdir restore`"


def _sync(descriptor: int, path: Path) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        message = f"the disk would not confirm {path}: {error.strerror}"
        raise Uncertain(message, hint=_HINT) from error


def _sync_path(path: Path, flags: int) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags)
    except OSError as error:
        message = f"the disk would not confirm {path}: {error.strerror}"
        raise Uncertain(message, hint=_HINT) from error
    try:
        _sync(descriptor, path)
    finally:
        os.close(descriptor)
