"""When written bytes are made durable (SPEC.md, "Locks and durability")."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.formats.errors import NotRecorded, Uncertain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Durability:
    """What exit 0 promises: each event is on the disk, the command's last one is, or neither."""

    ALWAYS = "always"
    BATCH = "batch"
    NEVER = "never"
    ALL = (ALWAYS, BATCH, NEVER)


class Disk:
    """How one command makes its writes durable, and what the disk would not confirm.

    After a failed `fsync` nobody knows what the disk holds, and asking again would be answered
    with a lie: so an agent's folder that was not confirmed gets no further write from here.
    """

    def __init__(self, durability: str = Durability.ALWAYS) -> None:
        self.durability = durability
        self._due: dict[Path, None] = {}
        self._after: dict[Path, tuple[Callable[[list[str]], None], dict[str, None]]] = {}
        self._doubtful: dict[Path, str] = {}

    @property
    def waits(self) -> bool:
        """Whether what is appended becomes durable only when the command is through."""
        return self.durability == Durability.BATCH

    def sync_append(self, descriptor: int, path: Path) -> None:
        """Make what was appended to a file durable, now or when `settled` ends.

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

    def afterwards(self, folder: Path, name: str, act: Callable[[list[str]], None]) -> None:
        """Call `act` once for the folder, with all names, when what they are made of is durable.

        What is derived must not be ahead of the log.
        """
        self._after.setdefault(folder, (act, {}))[1][name] = None

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Make durable, when the block is over, what had to wait. Raises `Uncertain`."""
        try:
            yield
        except (NotRecorded, Uncertain):
            self._due, self._after = {}, {}  # where the disk refuses, nothing more is written
            raise
        finally:
            due, self._due = self._due, {}
            for path in due:
                _sync_path(path, 0)
            after, self._after = self._after, {}
            for act, names in after.values():
                act(list(names))

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
