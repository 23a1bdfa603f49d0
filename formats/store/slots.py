"""ROOT/slots/: which sessions are in use, and since when they could be put away (D12, D26).

SPEC.md, "Slots". An entry counts only if the agent's log says that its session is active, so an
entry too many is harmless; none is missing, because a session becomes active under the lock of
this folder alone. Where the folder was lost, the agents themselves are looked through, once.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agentsdir.formats import ids
from agentsdir.formats.errors import Invalid, NotRecorded, UnsafePath
from agentsdir.formats.store import files, locks
from agentsdir.formats.store.layout import open_plain, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agentsdir.formats.store.files import Disk
    from agentsdir.formats.store.layout import Layout


_WHOLE = b"all\n"
_LONGEST_TIME = 40


class Slots:
    """The entries of one agents directory. What writes them holds `locked`."""

    def __init__(self, layout: Layout) -> None:
        self._folder = layout.slots
        self._lock = layout.slots_lock

    def check(self, disk: Disk) -> None:
        """Make the folder and its lock where they are not there; raise what `locked` would raise.

        But for `Busy`: it does not look who holds the lock.
        """
        files.make_folder(self._folder, disk)
        if self._folder.is_symlink():
            raise UnsafePath(f"{self._folder} is a link")
        os.close(open_plain(self._lock, os.O_RDWR | os.O_CREAT))

    @contextmanager
    def locked(self, disk: Disk, active: Callable[[], Iterable[str]]) -> Iterator[None]:
        """Hold the lock of the folder, which is made if it is not there.

        Args:
            active: returns the agents whose sessions are active; called where there are no entries.

        Raises what `locks.hold` raises.
        """
        self.check(disk)
        with locks.hold(self._lock, brief=True, what="the slots") as held:
            if os.pread(held.descriptor, len(_WHOLE), 0) != _WHOLE:
                for agent_id in active():
                    self.enter(agent_id)
                _write(held.descriptor, self._lock, _WHOLE)
            yield

    def __len__(self) -> int:
        return len(self._names())

    def entries(self) -> dict[str, str]:
        """Return when each was last released, by agent; empty for one that never was."""
        return {name: self._released(name) for name in self._names()}

    def _names(self) -> list[str]:
        if self._folder.is_symlink():
            raise UnsafePath(f"{self._folder} is a link")
        try:
            return [path.name for path in self._folder.iterdir() if ids.is_agent_id(path.name)]
        except FileNotFoundError:
            return []

    def has(self, agent_id: str) -> bool:
        """Tell whether the agent has an entry; a file that cannot be written is none."""
        try:
            status = (self._folder / agent_id).lstat()
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1

    def enter(self, agent_id: str) -> None:
        """Make an agent's entry, if there is none. Raises `NotRecorded`."""
        os.close(open_plain(self._folder / agent_id, os.O_WRONLY | os.O_CREAT))

    def release(self, agent_id: str, now: str) -> None:
        """Note in an agent's entry when it was released. Raises `NotRecorded`."""
        path = self._folder / agent_id
        descriptor = open_plain(path, os.O_WRONLY | os.O_CREAT)
        try:
            # All times are of one length, so that one write replaces another.
            _write(descriptor, path, now.encode() + b"\n")
        finally:
            os.close(descriptor)

    def leave(self, agent_id: str) -> None:
        """Remove an agent's entry, if it has one and the system lets us: it does not count."""
        with suppress(OSError):
            (self._folder / agent_id).unlink()

    def _released(self, agent_id: str) -> str:
        try:
            data = read_bytes(self._folder / agent_id, _LONGEST_TIME)
        except (FileNotFoundError, Invalid):
            return ""
        return data.decode(errors="replace").strip()


def _write(descriptor: int, path: Path, data: bytes) -> None:
    try:
        if os.pwrite(descriptor, data, 0) != len(data):
            raise NotRecorded(f"cannot write {path}: the disk is full")
    except OSError as error:
        raise NotRecorded(f"cannot write {path}: {error.strerror}") from error
