"""Disks of their own for tests: small ones that fill up, and ones whose power can be cut.

A test that writes to a folder on which nothing is mounted would fill the disk of the user who runs
it: so every mount is looked at, and every one is undone whatever happens.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

# ioctl FS_IOC_SHUTDOWN: from now on the file system reaches its disk no more. With this flag it
# does not even write its journal first, as when the power goes.
SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2


@contextmanager
def tmpfs(folder: Path, size: int) -> Iterator[Path]:
    """Mount an empty file system in memory that holds `size` bytes."""
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs"):
        yield folder


@contextmanager
def overlay(folder: Path) -> Iterator[Path]:
    """Mount an overlay over the folder `lower` in `folder`, on a file system in memory."""
    with tmpfs(folder / "layers", 16 * 1024 * 1024) as layers:
        shutil.copytree(folder / "lower", layers / "lower")
        for name in ("upper", "work"):
            (layers / name).mkdir()
        said = ",".join(f"{name}dir={layers / name}" for name in ("lower", "upper", "work"))
        with _mounted(folder / "merged", "-t", "overlay", "-o", said, "overlay"):
            yield folder / "merged"


def make_read_only(folder: Path) -> None:
    """Let no process write to what is mounted at `folder`, until it is unmounted."""
    assert folder.is_mount()
    _run("mount", "-o", "remount,ro", str(folder))


def unused(folder: Path) -> int:
    """Return how many bytes are free on the disk mounted at `folder`."""
    assert folder.is_mount()
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


@contextmanager
def in_memory() -> Iterator[Path]:
    """Make a folder where fsync costs nothing, if the machine has one; for little data only."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)
    with tempfile.TemporaryDirectory(prefix="faults-", dir=memory if usable else None) as folder:
        yield Path(folder)


class Ext4:
    """An ext4 file system with a journal, in an image below `folder`; mounted at `root`."""

    def __init__(self, folder: Path, megabytes: int = 16) -> None:
        self.root = folder / "disk"
        self._image = folder / "disk.img"
        self._size = megabytes * 1024 * 1024

    def __enter__(self) -> Self:
        with self._image.open("wb") as image:
            image.truncate(self._size)
        make = ("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", "-E", "lazy_itable_init=0")
        try:
            _run(*make, str(self._image))
            self.mount()
        except BaseException:
            self._image.unlink()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        unmount(self.root)
        self._image.unlink()

    def mount(self) -> None:
        """Mount the image; the loop device goes away with the mount."""
        # Nothing is written to the journal that no process asks for, however slow the test is.
        _mount(self.root, "-o", "loop,commit=600", str(self._image))

    def cut(self) -> None:
        """Cut the power: what was not synced until now is lost, and every later write fails."""
        assert self.root.is_mount()
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def power_up(self) -> None:
        """Mount again what a cut left, as a boot does; no process may use the old mount now."""
        unmount(self.root)
        self.mount()


@contextmanager
def _mounted(folder: Path, *arguments: str) -> Iterator[None]:
    try:
        _mount(folder, *arguments)
        yield
    finally:
        unmount(folder)


def _mount(folder: Path, *arguments: str) -> None:
    folder.mkdir(exist_ok=True)
    _run("mount", *arguments, str(folder))
    assert folder.is_mount(), f"nothing is mounted at {folder}"


def unmount(folder: Path) -> None:
    """Undo a mount, even if a process holds a file there; a folder without one is left alone."""
    for _ in range(50):
        if not folder.is_mount():
            return
        if subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode:
            time.sleep(0.02)
    _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)
