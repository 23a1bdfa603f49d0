"""Files to sessions: a main chat with the threads of its subagents.

A session is a file, not a session id: stubs, `.json` and `.jsonl` twins and imports share ids,
and each is a session of its own. Only subagents join the file that called them.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.adapters.contract import SessionFiles, Transcript
from agentsdir.adapters.gemini.store.projects import OUTPUTS
from agentsdir.adapters.gemini.transcripts.detection import CHECKPOINT, DOCUMENT, LOG, PROMPTS
from agentsdir.adapters.gemini.transcripts.heads import look_at, read_ends
from agentsdir.adapters.gemini.transcripts.sharing import shared_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.adapters.gemini.transcripts.heads import Head
    from agentsdir.formats.reading.source import Source


_LAST_RESORTS = (PROMPTS, CHECKPOINT)


class _File(NamedTuple):
    source: Source
    head: Head
    size: int

    @property
    def is_main(self) -> bool:
        """Whether it is a session's own file, as far as it says."""
        head = self.head
        return head.family in (LOG, DOCUMENT) and head.kind != "subagent" and not head.rendered

    @property
    def folder(self) -> PurePath:
        return PurePath(self.source.name).parent


def group(sources: Sequence[Source]) -> list[SessionFiles]:
    """Return sessions in the order of their first files, each subagent behind its main file.

    What only a prompt log or a saved chat has of a session comes behind all others.
    """
    every = [_look_at(one) for one in sources if OUTPUTS not in PurePath(one.name).parts]
    files = [one for one in every if one.head.family not in _LAST_RESORTS]
    mains: dict[tuple[PurePath, str], list[_File]] = {}
    for file in files:
        if file.head.kind != "subagent":
            mains.setdefault((file.folder, file.head.session_id), []).append(file)
    remarks = shared_ids((one.source.name, one.head.session_id) for one in files if one.is_main)
    children: dict[int, list[_File]] = {}
    taken: set[int] = set()
    for file in files:
        owner = _owner(file, mains)
        if owner is not None:
            children.setdefault(id(owner), []).append(file)
            taken.add(id(file))
    sessions = [
        SessionFiles(
            (
                Transcript(file.source, "subagent" if file.head.kind == "subagent" else "main"),
                *(Transcript(child.source, "subagent") for child in children.get(id(file), ())),
            ),
            remarks.get(file.source.name, ()),
        )
        for file in files
        if id(file) not in taken
    ]
    return _with_last_resorts(sessions, every) if len(files) < len(every) else sessions


def _with_last_resorts(sessions: list[SessionFiles], files: list[_File]) -> list[SessionFiles]:
    # Few folders have any: who has none need not pay for this.
    from agentsdir.adapters.gemini.transcripts.last_resorts import needed, project_of

    known: dict[PurePath, set[str]] = {}
    mains: dict[PurePath, list[Source]] = {}
    bearers: dict[str, list[Source]] = {}
    for file in files:
        if file.is_main and file.head.talks:
            project = project_of(file.source.name)
            known.setdefault(project, set()).add(file.head.session_id)
            mains.setdefault(project, []).append(file.source)
            bearers.setdefault(file.head.session_id, []).append(file.source)
    last = [(one.source, one.head.family) for one in files if one.head.family in _LAST_RESORTS]
    chosen, passed = needed(last, known, mains, bearers)
    first, *rest = sessions + chosen
    return [first._replace(remarks=first.remarks + passed), *rest]


def _look_at(source: Source) -> _File:
    ends = read_ends(source)
    return _File(source, look_at(ends), ends.size)


def _owner(file: _File, mains: dict[tuple[PurePath, str], list[_File]]) -> _File | None:
    """Return the main file of a subagent's file: by folder, or by session id in the same folder.

    Of several with that id, the largest: the others are stubs, or older twins.
    """
    head = file.head
    if not head.may_be_child:
        return None
    found: list[_File] = []
    if head.kind == "subagent":
        found = mains.get((file.folder.parent, file.folder.name), [])
    if not found and head.session_id:
        flat = mains.get((file.folder, head.session_id), [])
        found = [main for main in flat if not main.head.may_be_child]
    return max(found, key=lambda main: main.size) if found else None
