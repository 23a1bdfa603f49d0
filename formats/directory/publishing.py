"""An agent's folder appears whole, in one rename (SPEC.md, "Locks and durability")."""

from __future__ import annotations

import os
import shutil
from typing import Any

from agentsdir.formats.directory import derived, documents, fold, journal
from agentsdir.formats.directory.durability import Disk
from agentsdir.formats.directory.layout import DIRECTORY_MODE, TEMPORARY, AgentPaths, Layout
from agentsdir.formats.directory.log import Position
from agentsdir.formats.directory.records import NO_LINE, Record, line_hash
from agentsdir.formats.errors import NotRecorded


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
