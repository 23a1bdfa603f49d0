"""`validate` in routes/ and slots/: derived from the agents' logs, and never believed.

What is wrong there misleads nobody, but says that somebody else wrote it (docs/behaviour.md,
"Routes").
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from agentsdir.engine.routing import routes
from agentsdir.engine.validation.agents import check_entry
from agentsdir.engine.validation.derived import read_document
from agentsdir.engine.validation.problems import Problem
from agentsdir.engine.validation.values import NOTHING, breaches, decode
from agentsdir.formats.directory import ids
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.directory.layout import TEMPORARY
from agentsdir.formats.errors import AgentsdirError, Invalid
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.engine.validation.agents import Tally
    from agentsdir.formats.directory.layout import Layout
    from agentsdir.formats.directory.states import AgentState

_ROUTE = re.compile(r"[0-9a-f]{32}\.json")
INDEXES = ("routes", "slots")


def check_indexes(layout: Layout, name: str, tally: Tally, *, modes: bool) -> Iterator[Problem]:
    """Yield the problems of both folders; one that is not there is none."""
    for folder, check in ((layout.routes, _route), (layout.slots, _slot)):
        if folder.is_symlink() or not folder.is_dir():
            continue
        with os.scandir(folder) as entries:
            found = sorted(entry.name for entry in entries)
        for entry in found:
            inside = f"{name}/{folder.name}/{entry}"
            if entry.startswith(TEMPORARY):
                yield Problem("leftover", inside, "a writer that died left it; nothing needs it")
                continue
            problems = [*check_entry(folder / entry, inside, modes=modes, folder=False)]
            if not any(problem.id == "unsafe-path" for problem in problems):
                problems += check(layout, folder / entry, inside, tally)
            yield from problems


def _route(layout: Layout, path: Path, name: str, tally: Tally) -> Iterator[Problem]:
    if _ROUTE.fullmatch(path.name) is None:
        yield Problem("foreign-entry", name, "its name is no route's")
        return
    problems: list[Problem] = []
    piece = read_document(path, name, problems)
    value = NOTHING if piece is None else decode(piece, problems, document=True)
    if piece is not None and value is not NOTHING:
        tally.files += 1
        tally.records += 1
        problems += breaches("route", value, piece)
    yield from problems
    if value is NOTHING or any(problem.fails for problem in problems):
        return
    key = value["key"]
    if not _is_named_by(layout, key, path):
        yield Problem("derived-differs", name, "its name is not the one of its key")
    elif not _is_so(layout, value["agentId"], lambda state: routes.holds(state, key)):
        reason = f"agent {value['agentId']} is not, or no longer, {routes.says(key)}"
        yield Problem("derived-stale", name, reason)


def _is_named_by(layout: Layout, key: routes.Key, path: Path) -> bool:
    try:
        return routes.route_path(layout, key) == path
    except Invalid:  # no key of ours would be written so
        return False


def _slot(_layout: Layout, path: Path, name: str, tally: Tally) -> Iterator[Problem]:
    # Whether an entry counts, the agent's log says: one that does not is no remark.
    if path.name == ".lock":
        return
    if not ids.is_agent_id(path.name):
        yield Problem("foreign-entry", name, "its name is no agent id")
        return
    problems: list[Problem] = []
    piece = read_document(path, name, problems)
    yield from problems
    if piece is None:
        return
    tally.files += 1
    said = piece.data.decode(errors="replace").strip()
    if said and not is_rfc3339(said):  # empty while the session has not been released yet
        yield Problem("derived-differs", name, "it holds no time")


def _is_so(layout: Layout, agent_id: str, wanted: Callable[[AgentState], bool]) -> bool:
    try:
        return wanted(read_agent(layout.agent(agent_id)).state)
    except AgentsdirError:  # gone, or unreadable, which is said of the agent itself
        return False
