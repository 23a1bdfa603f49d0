"""Which prompt logs and saved chats are read: those of sessions that have no file of their own."""

from __future__ import annotations

from pathlib import PurePath

from agentsdir.adapters.contract import SessionFiles, Transcript
from agentsdir.adapters.gemini.store.projects import CHATS
from agentsdir.adapters.gemini.transcripts.checkpoints import session_of
from agentsdir.adapters.gemini.transcripts.detection import PROMPTS
from agentsdir.adapters.gemini.transcripts.lists import ListDocument
from agentsdir.adapters.gemini.transcripts.prompt_log import sessions_in
from agentsdir.formats.reading.findings import Finding

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from agentsdir.formats.reading.source import Source


def project_of(name: str) -> PurePath:
    """Return the project's folder that a session's or another file of the client's stands in."""
    path = PurePath(name)
    for above in path.parents:
        if above.name in (CHATS, "checkpoints"):
            return above.parent
    return path.parent


def needed(
    files: Iterable[tuple[Source, str | None]], known: Mapping[PurePath, Set[str]]
) -> tuple[list[SessionFiles], tuple[Finding, ...]]:
    """Choose among prompt logs and saved chats, in the order given; each is one session.

    What is not chosen is remarked on.

    Args:
        files: each with its family.
        known: the sessions that have files of their own, by project.
    """
    chosen: list[Source] = []
    passed: list[str] = []
    # Of one session's saved chats the last has all that the others have.
    latest: dict[tuple[PurePath, str], int] = {}
    for source, family in files:
        project = project_of(source.name)
        told = known.get(project, frozenset())
        if family == PROMPTS:
            is_told = sessions_in(source.read()) <= told
        else:
            session = session_of(ListDocument(source.read()).around)
            is_told = session in told if session else bool(told)
            if session and not is_told and (project, session) in latest:
                at = latest[project, session]
                passed.append(chosen[at].name)
                chosen[at] = source
                continue
            latest[project, session] = len(chosen)
        if is_told:
            passed.append(source.name)
        else:
            chosen.append(source)
    message = "other files beside it tell its sessions better"
    sessions = [
        SessionFiles(
            (Transcript(one, "main", told=frozenset(known.get(project_of(one.name), ()))),)
        )
        for one in chosen
    ]
    return sessions, tuple(
        Finding("skipped-file", name, None, None, None, message) for name in passed
    )
