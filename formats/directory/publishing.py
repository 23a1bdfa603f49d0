"""An agent's folder appears, moves and goes whole, in one rename (SPEC.md, "Locks and durability").

Who moves one or lets one go holds the create lock, its `.turn` and its `.lock`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from agentsdir.formats.directory import derived, documents, fold, journal
from agentsdir.formats.directory.durability import Disk
from agentsdir.formats.directory.layout import DIRECTORY_MODE, TEMPORARY, AgentPaths, Layout
from agentsdir.formats.directory.log import Position
from agentsdir.formats.directory.records import NO_LINE, Record, line_hash
from agentsdir.formats.errors import NotRecorded, Uncertain


def publish_agent(
    layout: Layout,
    agent_id: str,
    data: dict[str, Any],
    ts: str,
    session_id: str,
    disk: Disk | None = None,
) -> AgentPaths:
    """Make an agent's folder whole and let it appear in one rename.

    Args:
        data: the data of its `session.created` record.

    Raises `NotRecorded` when nothing appeared, `Uncertain` when only an fsync failed, `Invalid` for
    data that would not round-trip.
    """
    disk = disk or Disk()
    documents.make_folder(layout.agents, disk)
    temporary = layout.agents / f"{TEMPORARY}{agent_id}-{os.urandom(6).hex()}"
    paths = AgentPaths(layout.agents / agent_id, agent_id)
    try:
        temporary.mkdir(mode=DIRECTORY_MODE)
        _fill(AgentPaths(temporary, agent_id), data, ts, session_id, disk)
        disk.sync_folder(temporary)
        temporary.rename(paths.folder)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise NotRecorded(f"cannot make {paths.folder}: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    disk.sync_folder(layout.agents)
    return paths


def _fill(paths: AgentPaths, data: dict[str, Any], ts: str, session_id: str, disk: Disk) -> None:
    record = Record(1, ts, "session.created", session_id, data, NO_LINE)
    line = journal.encode_line(record)
    state = fold.begin(record)
    history = derived.history_line(record)
    state.position = Position(len(line), record.seq, line_hash(line), 0, 1)
    state.history_size = len(history)
    documents.write_new(paths.log, line, disk)
    documents.write_new(paths.history, history, disk)
    for path, document in derived.derived_documents(state).items():
        documents.write_new(paths.folder / path, document, disk)


def withdraw_agent(layout: Layout, paths: AgentPaths, disk: Disk) -> Path:
    """Let an agent's folder disappear in one rename; return where it lies until it is removed.

    Raises what `move_folder` raises.
    """
    temporary = layout.agents / f"{TEMPORARY}removed-{paths.id}-{os.urandom(6).hex()}"
    move_folder(paths.folder, temporary, disk)
    return temporary


def move_folder(old: Path, new: Path, disk: Disk) -> None:
    """Rename a folder durably.

    Raises `NotRecorded` when it stands where it stood, `Uncertain` when only an fsync failed, now
    or earlier.
    """
    parents = tuple(dict.fromkeys((new.parent, old.parent)))
    for parent in parents:
        disk.check(parent)
    try:
        old.rename(new)
    except OSError as error:
        raise NotRecorded(f"cannot move {old} to {new}: {error.strerror}") from error
    # The new name first: a folder may be seen twice after a crash, but never be lost.
    for parent in parents:
        try:
            disk.sync_folder(parent)
        except Uncertain as error:
            disk.doubt(parent, error)
            raise
