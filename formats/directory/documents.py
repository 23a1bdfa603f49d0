"""Whole files, replaced so that a reader or a crash finds the old one or the new one."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from agentsdir.formats.directory.layout import DIRECTORY_MODE, FILE_MODE, TEMPORARY
from agentsdir.formats.errors import NotRecorded, Uncertain


def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Put `data` at `path` in one rename.

    Args:
        durable: fsync file and folder before returning. Derived files may do without: a reader
            sees by their log position that they are stale.

    Raises `NotRecorded` when nothing was changed, `Uncertain` when only an fsync failed.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}-{os.urandom(6).hex()}")
    try:
        write_new(temporary, data, durable=durable)
        temporary.replace(path)
    except OSError as error:
        _discard(temporary)
        raise NotRecorded(f"cannot write {path}: {error.strerror}") from error
    except BaseException:
        _discard(temporary)
        raise
    if durable:
        sync_folder(path.parent)


def _discard(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink()


def write_new(path: Path, data: bytes, *, durable: bool) -> None:
    """Create a file that must not exist. Raises `OSError`, and `Uncertain` for a failed fsync."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if durable:
            sync(descriptor, path)
    finally:
        os.close(descriptor)


def sync(descriptor: int, path: Path) -> None:
    """Make an open file durable. Raises `Uncertain`; the caller must not try again."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise Uncertain(
            f"the disk would not confirm {path}: {error.strerror}",
            hint="check the disk, then run `agentsdir restore`",
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises `Uncertain`."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Uncertain(f"the disk would not confirm {folder}: {error.strerror}") from error
    try:
        sync(descriptor, folder)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a private folder and its parents. Raises `NotRecorded`."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    try:
        folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise NotRecorded(f"cannot make {folder}: {error.strerror}") from error
