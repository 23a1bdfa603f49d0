"""Which prompt logs and saved chats are read: those of sessions that have no file of their own."""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta
from hashlib import sha256
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.contract import SessionFiles, Transcript
from agentsdir.adapters.gemini.store.projects import CHATS
from agentsdir.adapters.gemini.transcripts.checkpoints import LISTS, session_of, turn_of
from agentsdir.adapters.gemini.transcripts.detection import DOCUMENT, PROMPTS, family_of
from agentsdir.adapters.gemini.transcripts.lists import ListDocument
from agentsdir.adapters.gemini.transcripts.prompt_log import prompts_in
from agentsdir.adapters.gemini.transcripts.prompts import prompt_pieces
from agentsdir.adapters.gemini.transcripts.shapes import (
    content_id,
    content_of,
    dict_of,
    list_of,
    moment_of,
    plain_text,
    text_of,
)
from agentsdir.adapters.gemini.transcripts.speakers import names_command
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import Tally
from agentsdir.formats.reading.source import HEAD

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
    from datetime import datetime

    from agentsdir.formats.reading.source import Source

# How long before and after a prompt was typed its message may be written.
_MOMENT, _MOMENTS = timedelta(seconds=1), timedelta(seconds=10)
# The command with which clients before 0.39 took prompts out of a session's file.
_REWIND = "/rewind"


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
    mains: Mapping[PurePath, Sequence[Source]],
    bearers: Mapping[str, Sequence[Source]],
) -> tuple[list[SessionFiles], tuple[Finding, ...]]:
    """Choose among prompt logs and saved chats, in the order given; each is one session.

    What is not chosen is remarked on.

    Args:
        files: each with its family.
        known: the sessions that have files of their own, by project.
        mains: these files, by project.
        bearers: these files, by the session's id: a project may be kept in two folders.
    """
    chosen: dict[str, Source] = {}
    passed: list[str] = []
    # Of one session's saved chats the last has all that the others have.
    latest: dict[tuple[PurePath, str], str] = {}
    # A newer client copies a project's folder under its new name.
    copies: dict[bytes, PurePath] = {}
    chats: dict[PurePath, list[tuple[str, list[set[str]]]]] = {}
    logs: list[Source] = []
    for source, family in files:
        data = source.read()
        project = project_of(source.name)
        if copies.setdefault(sha256(data).digest(), project) != project:
            passed.append(source.name)
            continue
        if family == PROMPTS:
            logs.append(source)
            chosen[source.name] = source
            continue
        document = ListDocument(data)
        session, asked = session_of(document.around), _asked(document)
        if session:
            is_told = session in known.get(project, ())
        else:
            is_told = any(_follows(asked, _said(main)) for main in mains.get(project, ()))
        if is_told:
            passed.append(source.name)
            continue
        chosen[source.name] = source
        if session and (project, session) in latest:
            before = latest[project, session]
            del chosen[before]
            passed.append(before)
        latest[project, session] = source.name
        chats.setdefault(project, []).append((session, asked))
    told: dict[str, frozenset[str]] = {}
    rewound: dict[str, frozenset[str]] = {}
    written: set[str] = set()
    for source in logs:
        project = project_of(source.name)
        own = known.get(project, frozenset())
        every = prompts_in(source.read())
        rest = [one for one in every if str(one["sessionId"]) not in own]
        near = list(mains.get(project, ()))
        for session in {str(one["sessionId"]) for one in rest}:
            near += bearers.get(session, ())
        entries = {content_id(one) for one in rest}
        elsewhere = frozenset(entries & written)
        if rest:
            elsewhere |= _spoken(rest, near)
        for session, asked in chats.get(project, ()):
            elsewhere |= _saved(rest, session, asked)
        written |= entries
        left: frozenset[str] = frozenset()
        if rest or any(one["message"].strip() == _REWIND for one in every):
            here, left = _in_sessions(every, bearers, mains.get(project, ()))
            elsewhere |= here
        told[source.name], rewound[source.name] = elsewhere | own, left
        if elsewhere >= entries and not left:
            del chosen[source.name]
            passed.append(source.name)
    message = "other files beside it tell its sessions better"
    sessions = [
        SessionFiles(
            (
                Transcript(
                    one,
                    "main",
                    told=told.get(one.name, frozenset()),
                    rewound=rewound.get(one.name, frozenset()),
                ),
            )
        )
        for one in chosen.values()
    ]
    return sessions, tuple(
        Finding("skipped-file", name, None, None, None, message) for name in passed
    )


def _asked(document: ListDocument) -> list[set[str]]:
    """Return what a person asked in a saved chat, in order, each in all its readings."""
    asked = []
    for row in document.rows(LISTS, "", Tally(), lambda _finding: None):
        role, parts = turn_of(row.value)
        if role == "user":
            for piece in prompt_pieces({"content": parts}):
                if piece.kind == "user_message":
                    shown = piece.fields["content"]
                    first = shown if isinstance(shown, str) else text_of(shown[0].get("text"))
                    asked.append({plain_text(parts).strip(), first.strip()})
    return asked


def _said(main: Source) -> list[set[str]]:
    """Return what stands in the user's place in a session's file, in order."""
    return [
        {plain_text(content_of(one)).strip(), plain_text(one.get("displayContent")).strip()}
        for one in _messages(main.read())
        if one.get("type") == "user"
    ]


def _follows(asked: list[set[str]], said: list[set[str]]) -> bool:
    """Tell whether all that was asked was said in this order, whatever was said between."""
    rest = iter(said)
    return all(any(one & other for other in rest) for one in asked)


def _saved(prompts: list[dict[str, Any]], session: str, asked: list[set[str]]) -> frozenset[str]:
    """Return the entries of prompts that a saved chat has, of the one session that has all of it.

    Args:
        prompts: the entries, in order.
        session: whose chat it is; empty where it does not say.
        asked: what was asked in it (`_asked`).
    """
    by_session: dict[str, list[dict[str, Any]]] = {}
    for prompt in prompts:
        by_session.setdefault(str(prompt["sessionId"]), []).append(prompt)
    for name, entries in by_session.items():
        found: list[str] = []
        rest = iter(asked)
        wanted = next(rest, None)
        for entry in entries:
            if wanted is not None and entry["message"].strip() in wanted:
                found.append(content_id(entry))
                wanted = next(rest, None)
        if found and wanted is None and session in ("", name):
            return frozenset(found)
    return frozenset()


def _spoken(prompts: list[dict[str, Any]], mains: Iterable[Source]) -> frozenset[str]:
    """Return the entries of prompts that stand in sessions' files, also under another id.

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
            if _is_soon(typed, moment):
                found.add(content_id(prompt))
                times.remove(moment)
                break
    return frozenset(found)


def _in_sessions(
    prompts: list[dict[str, Any]],
    bearers: Mapping[str, Sequence[Source]],
    mains: Sequence[Source],
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the entries that stand in their sessions' files, and those that a rewind took out.

    Args:
        prompts: the entries of all sessions, in order.
        bearers: the sessions' files, by id.
        mains: those of the project.
    """
    by_session: dict[str, list[dict[str, Any]]] = {}
    for prompt in prompts:
        by_session.setdefault(str(prompt["sessionId"]), []).append(prompt)
    here: set[str] = set()
    left: set[str] = set()
    for session, entries in by_session.items():
        files = [one for one in bearers.get(session, ()) if one in mains]
        if not files:
            continue
        written = _written(entries, files)
        here.update(content_id(entries[at]) for at in written)
        gone: list[dict[str, Any]] = []
        taken_out: list[dict[str, Any]] = []
        for at, entry in enumerate(entries):
            if entry["message"].strip() == _REWIND:
                taken_out += gone
                gone.clear()
            elif at in written:
                gone.clear()
            elif not names_command(entry["message"]):
                gone.append(entry)
        left.update(content_id(entry) for entry in taken_out)
        if taken_out:  # what was typed after /clear bears the old id, and stands in a new file
            here |= _spoken(taken_out, (one for one in mains if one not in files))
    return frozenset(here), frozenset(left - here)


def _written(entries: list[dict[str, Any]], files: Iterable[Source]) -> set[int]:
    """Return which entries of a session stand in its files: each message is one entry's.

    A message is that of the entry with its words, typed just before if there is one. Of prompts
    that waited several are one message. The client expands some prompts: a message that is left is
    that of the last entry before it.
    """
    said: dict[str, tuple[datetime | None, set[str]]] = {}
    for one in (one for file in files for one in _messages(file.read())):
        texts = {plain_text(content_of(one)).strip(), plain_text(one.get("displayContent")).strip()}
        if one.get("type") == "user" and texts != {""}:
            said[text_of(one.get("id")) or content_id(one)] = moment_of(one.get("timestamp")), texts
    by_text: dict[str, list[str]] = {}
    for name, (_, texts) in said.items():
        for text in texts | {piece for whole in texts for piece in whole.split("\n\n")}:
            by_text.setdefault(text.strip(), []).append(name)
    typed = [(moment_of(one.get("timestamp")), one["message"].strip()) for one in entries]
    found: set[int] = set()
    taken: set[str] = set()
    for near in (True, False):
        # The last first: what a rewind took out may have been typed again at once.
        for at, (moment, text) in reversed([*enumerate(typed)]):
            for name in reversed(by_text.get(text, [])) if at not in found else ():
                is_free = name not in taken or text not in said[name][1]
                if is_free and (not near or _is_soon(moment, said[name][0])):
                    found.add(at)
                    taken.add(name)
                    break
    rest = sorted(
        moment for name, (moment, _) in said.items() if name not in taken and moment is not None
    )
    for at, (moment, _) in enumerate(typed):
        if at not in found and moment is not None:
            first = bisect_left(rest, moment)
            end = typed[at + 1][0] if at + 1 < len(typed) else None
            if first < len(rest) and (end is None or rest[first] < end):
                found.add(at)
    return found


def _is_soon(typed: datetime | None, written: datetime | None) -> bool:
    """Tell whether a message was written when a prompt was typed."""
    return typed is not None and written is not None and -_MOMENT <= written - typed <= _MOMENTS


def _messages(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the messages of a session's file, a log's or a document's."""
    for line in (data,) if family_of(data[:HEAD]) == DOCUMENT else data.split(b"\n"):
        try:
            row = dict_of(orjson.loads(line)) if line else {}
        except orjson.JSONDecodeError:
            continue
        listed = dict_of(row.get("$set", row)).get("messages")
        yield from (dict_of(one) for one in list_of(listed) or [row])
