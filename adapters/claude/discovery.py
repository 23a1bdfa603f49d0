"""Which files make up a session: the main transcript and its subagents'."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from agentsdir.adapters.claude.detection import first_rows
from agentsdir.adapters.claude.shapes import agent_id
from agentsdir.adapters.contract import SessionFiles, Transcript
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_SIDECHAIN = re.compile(rb'"isSidechain":\s*true')
_AGENT = re.compile(rb'"agentId":\s*"([A-Za-z0-9_.:-]{1,128})"')
SIDE_FOLDER = "subagents"


class _Head:
    """What the beginning of one file says about its place in a session."""

    def __init__(self, source: Source) -> None:
        self.source = source
        path = PurePath(source.path if source.path is not None else source.name)
        self.folder = path.parent
        self.stem = path.stem
        try:
            rows = first_rows(source.head)
        except AgentsdirError:  # where it stands is all that is left to go by
            self.sessions: list[str] = []
            self.is_child = SIDE_FOLDER in self.folder.parts
            return
        self.sessions = [
            session for row in rows if isinstance(session := row.get("sessionId"), str)
        ]
        first = next((row for row in rows if "isSidechain" in row), None)
        if first is not None:
            self.is_child = (
                first["isSidechain"] is True and agent_id(first.get("agentId")) is not None
            )
        else:  # a first row that is still being written
            line = source.head().split(b"\n", 1)[0]
            self.is_child = bool(_SIDECHAIN.search(line) and _AGENT.search(line))

    def parents(self) -> list[tuple[PurePath, str]]:
        """Return where the main transcript may stand, as (folder, name without suffix)."""
        places = [
            (above.parent.parent, above.parent.name)
            for above in [self.folder, *self.folder.parents]
            if above.name == SIDE_FOLDER
        ]
        return places + [(self.folder, session) for session in self.sessions]


def is_child(source: Source) -> bool:
    """Tell whether a file is a subagent's, by its beginning."""
    return _Head(source).is_child


def is_child_of(folder: PurePath, names: Collection[str], source: Source) -> bool:
    """Tell whether a file is a subagent's of the session that has one of `names` in `folder`."""
    head = _Head(source)
    return head.is_child and any(
        place == folder and name in names for place, name in head.parents()
    )


def discover(sources: Sequence[Source]) -> list[SessionFiles]:
    """Group transcripts into sessions, in the order in which their first files come.

    A child stands with its main transcript when that is among `sources`. Without it, it is a
    session of its own, and is then read exactly as from standard input: alone, without sidecar.
    """
    heads = [_Head(source) for source in sources]
    mains = {(head.folder, head.stem): head for head in heads if not head.is_child}
    # A session may have been renamed; its rows still say which it is.
    for head in heads:
        if not head.is_child:
            for session in () if head.stem in head.sessions else head.sessions[:1]:
                mains.setdefault((head.folder, session), head)
    children: dict[int, list[_Head]] = {}
    alone = []
    for head in heads:
        if head.is_child:
            owner = next((mains[place] for place in head.parents() if place in mains), None)
            if owner is None:
                alone.append(head)
            else:
                children.setdefault(id(owner), []).append(head)
    sessions = []
    for head in heads:
        if head in alone:
            sessions.append(SessionFiles((Transcript(head.source, "subagent"),)))
        elif not head.is_child:
            below = children.get(id(head), ())
            files = [
                Transcript(child.source, "subagent", _sidecar(child.source)) for child in below
            ]
            sessions.append(SessionFiles((Transcript(head.source, "main"), *files)))
    return sessions


def _sidecar(source: Source) -> Source | None:
    if source.path is None:
        return None
    path = source.path.with_suffix(".meta.json")
    try:
        if not path.is_file():
            return None
    except OSError:  # a name so long that nothing can stand beside it
        return None
    return Source(str(PurePath(source.name).with_suffix(".meta.json")), path=path)
