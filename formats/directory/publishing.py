"""An agent's folder appears, moves and goes whole, in one rename (SPEC.md, "Locks and durability").

Who moves one or lets one go holds the create lock, its `.turn` and its `.lock`.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsdir.formats.directory import derived, documents, fold, journal, transcripts
from agentsdir.formats.directory.durability import Disk
from agentsdir.formats.directory.layout import (
    DIRECTORY_MODE,
    FILE_MODE,
    TEMPORARY,
    AgentPaths,
)
from agentsdir.formats.directory.log import Position, open_log, read_log
from agentsdir.formats.directory.records import Record, line_hash
from agentsdir.formats.errors import NotRecorded, Uncertain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.directory.layout import (
        Layout,
    )
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.source import Source


ON_ANOTHER_LAYER = "on-another-layer"
"""The kind of a refusal by overlayfs: it renames no folder that the lower layer has."""


class UnpublishedAgent:
    """An agent that is being made: nobody sees it, and nothing of it is durable yet.

    Valid inside `making_agent`.
    """

    def __init__(self, paths: AgentPaths, session_id: str, disk: Disk) -> None:
        self.paths = paths
        self._session_id = session_id
        self._disk = disk
        self._state: AgentState | None = None
        self._position = Position()
        self._log = _Batch(paths.log)
        self._history = _Batch(paths.history)

    def append(self, event: str, data: dict[str, Any], ts: str) -> None:
        """Append one event; the first is `session.created`.

        Raises `Invalid` for data that would not round-trip, or that no reader would take back.
        """
        before = self._position
        record = Record(before.next_seq, ts, event, self._session_id, data, before.last_hash)
        line = journal.encode_line(record)
        if self._state is None:
            self._state = fold.begin(record)
        else:
            fold.apply(self._state, record)
        self._log.write(line)
        self._position = Position(
            before.size + len(line), record.seq, line_hash(line), 0, before.lines + 1
        )
        history = derived.history_line(record)
        self._history.write(history)
        self._state.history_size += len(history)

    def take_log(self, paths: AgentPaths, state: AgentState) -> None:
        """Take over the log of another agent's folder as it stands, to the byte.

        Args:
            state: the fold of that log; what follows its position is left.
        """
        size = state.position.size
        with open_log(paths.log) as stream:
            for piece in transcripts.pieces(stream, size):
                self._log.write(piece)
        with open_log(paths.log) as stream:
            for line in read_log(stream, str(paths.log)):
                if line.after.size > size:
                    break
                if line.record is not None:
                    self._history.write(derived.history_line(line.record))
        self._state, self._position = state, state.position

    def store(self, native: str, role: str, source: Source) -> transcripts.Synced:
        """Store a transcript durably (errors of `transcripts.store`)."""
        synced = transcripts.store(self.paths, native, role, source, None, self._disk)
        assert synced is not None
        return synced

    def finish(self) -> None:
        """Make everything durable. Raises `OSError`, and `Uncertain` for a failed fsync."""
        state = self._state
        assert state is not None
        state.position = self._position
        for stream, path in ((self._log, self.paths.log), (self._history, self.paths.history)):
            stream.flush()
            self._disk.sync(stream.fileno(), path)
        for name, document in derived.derived_documents(state).items():
            documents.write_new(self.paths.folder / name, document, self._disk)
        self._disk.sync_folder(self.paths.folder)

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        self._history.close()


class _Batch:
    """A new file that is written in large pieces, and not at all once the disk has refused one."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, FILE_MODE)
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        """Take more bytes."""
        self._held.append(data)
        self._size += len(data)
        if self._size > transcripts.CHUNK:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the system."""
        view = memoryview(b"".join(self._held))
        self._held.clear()
        self._size = 0
        while view:
            view = view[os.write(self._descriptor, view) :]

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def close(self) -> None:
        """Close the file; what was not flushed is dropped."""
        os.close(self._descriptor)


@contextmanager
def making_agent(
    layout: Layout, agent_id: str, session_id: str, disk: Disk
) -> Iterator[UnpublishedAgent]:
    """Make an agent's folder whole, and let it appear in one rename when the block is over.

    The caller holds the create lock. However much the agent is given, it is made durable once.
    Raises `NotRecorded` when nothing appeared, `Uncertain` when only an fsync failed.
    """
    with folder_to_publish(layout, agent_id, disk) as paths:
        made = UnpublishedAgent(paths, session_id, disk)
        try:
            yield made
            made.finish()
        finally:
            made.close()


@contextmanager
def folder_to_publish(layout: Layout, agent_id: str, disk: Disk) -> Iterator[AgentPaths]:
    """Make a folder for an agent's files that becomes the agent's when the block is over.

    Raises as `making_agent` does.
    """
    documents.make_folder(layout.agents, disk)
    temporary = layout.agents / f"{TEMPORARY}{agent_id}-{os.urandom(6).hex()}"
    folder = layout.agents / agent_id
    with _placing(temporary, folder, disk, f"make {folder}"):
        temporary.mkdir(mode=DIRECTORY_MODE)
        yield AgentPaths(temporary, agent_id)


def publish_agent(
    layout: Layout,
    agent_id: str,
    data: dict[str, Any],
    ts: str,
    session_id: str,
    disk: Disk | None = None,
) -> AgentPaths:
    """Make an agent that has nothing but its beginning.

    Args:
        data: the data of its `session.created` record.

    Raises as `making_agent` does, and `Invalid` for data that would not round-trip.
    """
    with making_agent(layout, agent_id, session_id, disk or Disk()) as made:
        made.append("session.created", data, ts)
    return AgentPaths(layout.agents / agent_id, agent_id)


def withdraw_agent(layout: Layout, paths: AgentPaths, disk: Disk) -> Path:
    """Let an agent's folder disappear in one rename; return where it lies until it is removed.

    Where the system renames no such folder, the files go first, the log after all others and
    before the locks, which the caller holds: until then the agent is there, and can be removed
    again.

    Raises what `move_folder` raises.
    """
    temporary = layout.agents / f"{TEMPORARY}removed-{paths.id}-{os.urandom(6).hex()}"
    try:
        move_folder(paths.folder, temporary, disk)
    except NotRecorded as error:
        if error.kind != ON_ANOTHER_LAYER:
            raise
        _empty(paths, disk)
        return paths.folder
    return temporary


def _empty(paths: AgentPaths, disk: Disk) -> None:
    kept = (paths.log, paths.lock, paths.turn)
    for path in paths.folder.iterdir():
        if path not in kept:
            documents.remove(path)
    documents.remove(paths.log)
    disk.sync_folder(paths.folder)


def move_agent(paths: AgentPaths, new: Path, disk: Disk) -> None:
    """Move an agent's folder, whose locks the caller holds, to another place in its root.

    Where the system renames no such folder, a copy appears there whole, and the old one goes.

    Raises what `move_folder` raises.
    """
    try:
        move_folder(paths.folder, new, disk)
    except NotRecorded as error:
        if error.kind != ON_ANOTHER_LAYER:
            raise
        _copy(paths.folder, new, disk)
        _empty(paths, disk)
        documents.remove(paths.folder)


def _copy(old: Path, new: Path, disk: Disk) -> None:
    temporary = new.with_name(f"{TEMPORARY}{new.name}-{os.urandom(6).hex()}")
    with _placing(temporary, new, disk, f"copy {old} to {new}"):
        shutil.copytree(old, temporary, symlinks=True)
        for entry in documents.entries(temporary):
            if entry.is_dir(follow_symlinks=False):
                disk.sync_folder(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                with Path(entry.path).open("rb") as stream:
                    disk.sync(stream.fileno(), Path(entry.path))
        disk.sync_folder(temporary)


@contextmanager
def _placing(temporary: Path, folder: Path, disk: Disk, doing: str) -> Iterator[None]:
    """Let a folder be filled under another name, and give it its own, or remove it again."""
    try:
        yield
        temporary.rename(folder)
    except OSError as error:
        _discard(temporary)
        raise NotRecorded(f"cannot {doing}: {error.strerror or error}") from error
    except BaseException:
        _discard(temporary)
        raise
    disk.sync_folder(folder.parent)


def move_folder(old: Path, new: Path, disk: Disk) -> None:
    """Rename a folder durably.

    Raises `NotRecorded` when it stands where it stood (kind `ON_ANOTHER_LAYER` for a folder that
    can be removed, but not renamed), `Uncertain` when only an fsync failed, now or earlier.
    """
    parents = tuple(dict.fromkeys((new.parent, old.parent)))
    for parent in parents:
        disk.check(parent)
    try:
        old.rename(new)
    except OSError as error:
        kind = ON_ANOTHER_LAYER if error.errno == errno.EXDEV else None
        raise NotRecorded(f"cannot move {old} to {new}: {error.strerror}", kind=kind) from error
    # The new name first: a folder may be seen twice after a crash, but never be lost.
    for parent in parents:
        try:
            disk.sync_folder(parent)
        except Uncertain as error:
            disk.doubt(parent, error)
            raise


def _discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
