"""Agents looked at again and again, where only what changed is read (docs/commands.md, "Lists")."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

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

if TYPE_CHECKING:
    from datetime import datetime

    from agentsdir.engine.listing import Wanted
    from agentsdir.formats.store.layout import Layout

_ASKED_FOR = 1.0
"""Seconds that a question is open before it is shown: hooks answer most at once."""
_FIRST = {WAITING: 0, RUNNING: 1}

_Stamp = tuple[int, int, int]
"""Inode, time of the last change in ns, and size of a log."""


class Seen(NamedTuple):
    """An agent as it was read last; `line` is its row as JSON, since those of all are held."""

    stamp: _Stamp | None
    state: str
    changed: str
    line: bytes
    is_wanted: bool
    names: tuple[str, ...]

    @property
    def row(self) -> dict[str, Any]:
        """The row that a list shows."""
        row: dict[str, Any] = orjson.loads(self.line)
        return row

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
        if _names(seen) != _names(before):
            others = {name for one in seen.values() for name in one.names}
            self._short = short_length(seen.keys(), others)
        shown = [one for one in seen.values() if one.is_wanted]
        shown.sort(key=lambda one: one.changed, reverse=True)
        shown.sort(key=lambda one: _FIRST.get(one.state, 2))
        return CurrentList(shown, began, finished, self._short)

    def _look_at(self, paths: AgentPaths, old: Seen | None, now: datetime) -> Seen | None:
        stamp = _stamp_of(paths)
        is_same = old is not None and stamp is not None and old.stamp == stamp
        if old is not None and is_same and not old.works and not _is_at_work(paths):
            return old
        try:
            listed = listed_agent(paths)
        except NoSuchAgent:
            return None
        document = listed.document
        if document is None:
            line = orjson.dumps(unreadable_row(listed))
            return Seen(None, UNREADABLE, "", line, self._wanted == ALL, ())
        row = document_row(paths, document)
        wanted = self._wanted.fits(document, row) and not self._wanted.hides(row)
        state = state_of(row)
        if state == WAITING and not _is_old(row["question"]["at"], now):
            state, row["question"] = RUNNING, None
        line = orjson.dumps(row)
        return Seen(stamp, state, last_change(row), line, wanted, other_names(listed))


def _names(agents: dict[str, Seen]) -> list[tuple[str, tuple[str, ...]]]:
    return [(agent_id, one.names) for agent_id, one in agents.items()]


def _stamp_of(paths: AgentPaths) -> _Stamp | None:
    try:
        status = os.lstat(f"{paths.place}/events.jsonl")
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_at_work(paths: AgentPaths) -> bool:
    return locks.is_held(f"{paths.place}/.turn")


def _is_old(at: str, now: datetime) -> bool:
    try:
        return (now - times.from_text(at)).total_seconds() >= _ASKED_FOR
    except (ValueError, OverflowError):
        return True
