"""Which prompt logs and saved chats are read: those of sessions that have no file of their own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePath

import orjson

from agentsdir.adapters.contract import SessionFiles, Transcript
from agentsdir.adapters.gemini.store.projects import CHATS
from agentsdir.adapters.gemini.transcripts.checkpoints import session_of
from agentsdir.adapters.gemini.transcripts.detection import DOCUMENT, PROMPTS, family_of
from agentsdir.adapters.gemini.transcripts.lists import ListDocument
from agentsdir.adapters.gemini.transcripts.prompt_log import entry_of, prompts_in
from agentsdir.adapters.gemini.transcripts.shapes import (
    content_of,
    dict_of,
    list_of,
    moment_of,
    plain_text,
)
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.source import HEAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Set
    from datetime import datetime
    from typing import Any

    from agentsdir.formats.reading.source import Source

# How long before and after a prompt was typed its message may be written.
_MOMENT, _MOMENTS = timedelta(seconds=1), timedelta(seconds=10)


def project_of(name: str) -> PurePath:
    """Return the project's folder that a session's or another file of the client's stands in."""
    path = PurePath(name)
    for above in path.parents:
        if above.name in (CHATS, "checkpoints"):
            return above.parent
    return path.parent


def needed(
    files: Iterable[tuple[Source, str | None]],
    known: Mapping[PurePath, Set[str]],
    mains: Mapping[PurePath, list[Source]],
) -> tuple[list[SessionFiles], tuple[Finding, ...]]:
    """Choose among prompt logs and saved chats, in the order given; each is one session.

    What is not chosen is remarked on.

    Args:
        files: each with its family.
        known: the sessions that have files of their own, by project.
        mains: these files, by project.
    """
    entries: dict[str, frozenset[str]] = {}
    chosen: list[Source] = []
    passed: list[str] = []
    # Of one session's saved chats the last has all that the others have.
    latest: dict[tuple[PurePath, str], int] = {}
    for source, family in files:
        project = project_of(source.name)
        told = known.get(project, frozenset())
        if family == PROMPTS:
            rest = [
                one for one in prompts_in(source.document()) if str(one["sessionId"]) not in told
            ]
            spoken = _spoken(rest, mains.get(project, ())) if rest else frozenset()
            entries[source.name] = spoken
            is_told = len(spoken) == len({entry_of(one) for one in rest})
        else:
            session = session_of(ListDocument(source.document()).around)
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
            (
                Transcript(
                    one,
                    "main",
                    told=entries.get(one.name, frozenset()).union(
                        known.get(project_of(one.name), ())
                    ),
                ),
            )
        )
        for one in chosen
    ]
    return sessions, tuple(
        Finding("skipped-file", name, None, None, None, message) for name in passed
    )


def _spoken(prompts: list[dict[str, Any]], mains: Iterable[Source]) -> frozenset[str]:
    """Return the entries of prompts that stand in sessions' files under another id.

    A client that resumes a session logs what is typed under the id of its own run (0.38). The
    message is written a moment after the prompt was typed.
    """
    moments: dict[str, list[datetime]] = {}
    for main in mains:
        for message in _messages(main.read()):
            moment = moment_of(message.get("timestamp"))
            if message.get("type") == "user" and moment is not None:
                shown = message.get("displayContent")
                said = plain_text(content_of(message) if shown is None else shown).strip()
                moments.setdefault(said, []).append(moment)
    found = set()
    for prompt in prompts:
        typed = moment_of(prompt.get("timestamp"))
        times = moments.get(prompt["message"].strip(), [])
        for moment in times:
            if typed is not None and -_MOMENT <= moment - typed <= _MOMENTS:
                found.add(entry_of(prompt))
                times.remove(moment)
                break
    return frozenset(found)


def _messages(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the messages of a session's file, a log's or a document's."""
    for line in (data,) if family_of(data[:HEAD]) == DOCUMENT else data.split(b"\n"):
        try:
            row = dict_of(orjson.loads(line)) if line else {}
        except orjson.JSONDecodeError:
            continue
        listed = dict_of(row.get("$set", row)).get("messages")
        yield from (dict_of(one) for one in list_of(listed) or [row])
