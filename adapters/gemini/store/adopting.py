"""A session as it stands in some folder: what somebody needs to know who goes on with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.adapters.contract import Adoptable
from agentsdir.adapters.gemini.store import cards
from agentsdir.adapters.gemini.store import contents as store
from agentsdir.adapters.gemini.store.native_files import native_files
from agentsdir.adapters.gemini.store.own_files import chat_name, is_chat_name
from agentsdir.adapters.gemini.store.projects import CHATS, TMP, Projects, slug
from agentsdir.adapters.gemini.transcripts.detection import LOG, family_of
from agentsdir.adapters.gemini.transcripts.heads import (
    look_at,
    messages,
    read_ends,
    started,
    workspace_of,
)
from agentsdir.adapters.gemini.transcripts.shapes import text_of
from agentsdir.formats.errors import Invalid
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.adapters.contract import NativeFile
    from agentsdir.adapters.gemini.transcripts.heads import Ends

# As a document has it in a message, and not deeper.
_MODEL = re.compile(rb'\n {6}"model": "([^"\\]+)"')
_IS_FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,200}").fullmatch
_NO_TIME = "1970-01-01T00:00"


def adoptable(main: Path) -> Adoptable:
    """Return the session whose main transcript is at `main`, with all files that are its own.

    Of a document and the log that goes on from it, it is the log, whichever was named.

    Raises `Invalid` (kind ``bad-native-id``) when the file does not say which session it is, or
    says what no client takes for an id; `OSError` and `AgentsdirError` when it cannot be read.
    """
    # Prompt logs and forks have ids of sessions, too, but nothing that the client goes on with.
    native_id = look_at(read_ends(Source(str(main), path=main))).session_id
    if not store.ID.fullmatch(native_id):
        raise Invalid(
            f"{main} does not say which session it is: {native_id!r} is no id",
            kind="bad-native-id",
        )
    main = _log_of(main, native_id)
    ends = read_ends(Source(str(main), path=main))
    card = cards.read_card(main)
    family = card.head.family if card and card.head.family else ""
    in_store = main.parent.name == CHATS
    folder = main.parent.parent.name if in_store else ""
    # A bundle is no store, and says itself where it belongs.
    cwd = Projects(main.parents[3]).root(folder) if in_store and len(main.parents) > 3 else ""
    cwd = cwd or workspace_of(ends, family)
    if not _IS_FOLDER(folder):
        folder = slug(Path(cwd).name)
    return Adoptable(
        id=native_id,
        cwd=cwd,
        model=_model(ends, family),
        title=card.title if card else "",
        files=tuple(_files(main, native_id, f"{TMP}/{folder}", ends)),
    )


def _log_of(main: Path, native_id: str) -> Path:
    log = main.with_suffix(".jsonl")
    if log != main and log.is_file():
        card = cards.read_card(log)
        if card and card.head.talks and card.head.session_id == native_id:
            return log
    return main


def _files(main: Path, native_id: str, project: str, ends: Ends) -> Iterator[NativeFile]:
    """Yield the session's files, the transcript under a name that a client gives such files."""
    for file in native_files(main, native_id, project):
        if file.role == "main" and not is_chat_name(main.name):
            suffix = ".jsonl" if family_of(ends.head) == LOG else ".json"
            name = chat_name(native_id, started(ends) or _NO_TIME, suffix)
            yield file._replace(path=f"{project}/{CHATS}/{name}")
        else:
            yield file


def _model(ends: Ends, family: str) -> str:
    """Return the model that answered last, as the ends of the file say; empty where they do not."""
    told = [text_of(message.get("model")) for message in messages(ends, family)]
    told += [found.decode(errors="replace") for found in _MODEL.findall(ends.tail)]
    return next((model for model in reversed(told) if model), "")
