"""Agents looked at again and again, where only what changed is read (docs/commands.md, "Lists")."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.listing import (
    ALL,
    RUNNING,
    SHORT,
    UNREADABLE,
    WAITING,
    last_change,
    other_names,
    short_length,
    state_of,
)
from agentsdir.engine.lookup import document_row, listed_agent, unreadable_row
from agentsdir.formats import times
from agentsdir.formats.errors import NoSuchAgent
from agentsdir.formats.store import locks
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from agentsdir.engine.listing import Wanted
    from agentsdir.formats.store.layout import Layout

_ASKED_FOR = 1.0
"""Seconds that a question is open before it is shown: hooks answer most at once."""
_FIRST = {WAITING: 0, RUNNING: 1}

_Stamp = tuple[int, int, int]
"""Inode, time of the last change in ns, and size of a log."""


class Seen(NamedTuple):
    """As much of an agent, as it was read last, as is held of all of them."""

    agent_id: str
    stamp: _Stamp | None
    state: str
    changed: str
    is_wanted: bool
    names: tuple[str, ...]

    @property
    def works(self) -> bool:
        """Whether a process holds its turn."""
        return self.state in (RUNNING, WAITING)


class CurrentList(NamedTuple):
    """What a look found.

    `agents` are in the order in which they are shown. `began_to_wait` and `finished` are how many
    of them did so since the look before. `short` is how many characters of an id name an agent.
    """

    agents: list[Seen]
    began_to_wait: int
    finished: int
    short: int


class WatchedAgents:
    """The agents of a directory, read when their logs change and while they work.

    Args:
        wanted: which agents are shown.
    """

    def __init__(self, layout: Layout, wanted: Wanted) -> None:
        self._layout = layout
        self._wanted = wanted
        self._seen: dict[str, Seen] | None = None
        self._short = SHORT
        self._rows: dict[str, tuple[Seen, dict[str, Any]]] = {}

    def look(self, now: datetime) -> CurrentList:
        """Look at all agents: those that wait come first, then those that work, then the newest."""
        before, is_first = self._seen or {}, self._seen is None
        seen: dict[str, Seen] = {}
        folder = self._layout.folder(archived=False)
        for agent_id in self._layout.agent_ids():
            paths = AgentPaths(f"{folder}/{agent_id}", agent_id)
            found = self._look_at(paths, before.get(agent_id), now)
            if found is not None:
                seen[agent_id] = found
        self._seen = seen
        began = finished = 0
        for agent_id, one in seen.items():
            old = before.get(agent_id)
            waited = old is not None and old.state == WAITING
            began += one.is_wanted and one.state == WAITING and not waited and not is_first
        for agent_id, one in before.items():
            new = seen.get(agent_id)
            finished += one.is_wanted and one.works and (new is None or not new.works)
        if is_first or any(one is not before.get(one.agent_id) for one in seen.values()):
            others = {name for one in seen.values() for name in one.names}
            self._short = short_length(seen.keys(), others)
        shown = [one for one in seen.values() if one.is_wanted]
        shown.sort(key=lambda one: one.changed, reverse=True)
        shown.sort(key=lambda one: _FIRST.get(one.state, 2))
        return CurrentList(shown, began, finished, self._short)

    def rows(self, agents: Sequence[Seen]) -> list[dict[str, Any]]:
        """Return the rows of some agents, which a list shows; those gone since are left out."""
        kept, self._rows = self._rows, {}
        for one in agents:
            last = kept.get(one.agent_id)
            with suppress(NoSuchAgent):
                is_same = last is not None and last[0] is one
                row = last[1] if last is not None and is_same else self._row_of(one)
                self._rows[one.agent_id] = one, row
        return [row for _, row in self._rows.values()]

    def _row_of(self, one: Seen) -> dict[str, Any]:
        listed = listed_agent(self._layout.agent(one.agent_id))
        if listed.document is None:
            return unreadable_row(listed)
        row = document_row(listed.paths, listed.document)
        if one.state != WAITING:
            row["question"] = None
        return row

    def _look_at(self, paths: AgentPaths, old: Seen | None, now: datetime) -> Seen | None:
        stamp = _stamp_of(paths)
        is_same = old is not None and stamp is not None and old.stamp == stamp
        if old is not None and is_same and not old.works and not _may_work(paths, old):
            return old
        try:
            listed = listed_agent(paths)
        except NoSuchAgent:
            return None
        document = listed.document
        if document is None:
            return Seen(paths.id, None, UNREADABLE, "", self._wanted == ALL, ())
        row = document_row(paths, document)
        wanted = self._wanted.fits(document, row) and not self._wanted.hides(row)
        state = state_of(row)
        if state == WAITING and not _is_old(row["question"]["at"], now):
            state = RUNNING
        return Seen(paths.id, stamp, state, last_change(row), wanted, other_names(listed))


def _may_work(paths: AgentPaths, old: Seen) -> bool:
    # No turn of a closed agent runs.
    is_closed = old.state == SessionState.TERMINATED
    return not is_closed and locks.is_held(f"{paths.place}/.turn")


def _stamp_of(paths: AgentPaths) -> _Stamp | None:
    try:
        status = os.lstat(f"{paths.place}/events.jsonl")
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_old(at: str, now: datetime) -> bool:
    try:
        return (now - times.from_text(at)).total_seconds() >= _ASKED_FOR
    except (ValueError, OverflowError):
        return True
