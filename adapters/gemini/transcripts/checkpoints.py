"""Saved chats: what ``/chat save`` and ``/restore`` keep is what the model would be sent.

There are no times, ids, tokens or models in it. It is read where no session has more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.transcripts.lists import ListDocument
from agentsdir.adapters.gemini.transcripts.shapes import (
    content_id,
    parts_of,
    plain_text,
    text_of,
)
from agentsdir.adapters.gemini.transcripts.speakers import GIVEN_ANSWER, is_client
from agentsdir.adapters.gemini.transcripts.turns import Turn, TurnWriter
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import Row
from agentsdir.formats.reading.sink import DROPPED
from agentsdir.formats.reading.usage import usage

if TYPE_CHECKING:
    from agentsdir.adapters.contract import Transcript
    from agentsdir.formats.reading.sink import ParseSink

# Where the turns stand, the richest first: /restore, /chat save, and its oldest form.
LISTS = ("clientHistory", "history", "")
_BETWEEN = "########"
# The answers that the client gives itself to the environment it sends first.
_GIVEN = ("Got it. Thanks for the context!", GIVEN_ANSWER)


def read_checkpoint(transcript: Transcript, sink: ParseSink) -> None:
    """Read a saved chat; ids come from what the turns say.

    See docs/clients/gemini.md, "Last resorts".
    """
    source, tally = transcript.source, sink.tally
    document = ListDocument(source.document())
    session = session_of(document.around)
    writer = TurnWriter(sink, source.name, session)
    if document.around:
        tally.lines += 1
        tally.hide("header")
        around = Row(document.around, 1, 0, len(document.data), b"", salvaged=False, lossy=())
        writer.log(Turn(content_id(document.around), around, []), document.around, "checkpoint")
    setting_up = False
    for row in document.rows(LISTS, source.name, tally, sink.finding):
        role, parts = turn_of(row.value)
        turn = Turn(writer.names.unique(content_id(row.value)), row, parts)
        last, writer.reason = DROPPED, ""
        if role == "user":
            last = writer.user(turn)
            setting_up = last == DROPPED and is_client(plain_text(parts))
        elif role == "model" and setting_up and plain_text(parts).strip() in _GIVEN:
            writer.log(turn, row.value, "model", reason="session-context")
        elif role == "model":
            last = writer.model(turn)
        else:
            value = row.value if isinstance(row.value, dict) else {"role": type(row.value).__name__}
            writer.unknown(turn, row.value, "turn", value.get("role", value.get("type")))
        if last == DROPPED:
            tally.settle_hidden(row, writer.reason or "empty")
        else:
            tally.settle_parsed(row)
    writer.end()
    message = "a saved chat: without times, tokens, models and the ids of its messages"
    sink.finding(Finding("last-resort", source.name, None, None, None, message))
    if not writer.visible:
        message = "the transcript holds no conversation"
        sink.finding(Finding("no-messages", source.name, None, None, None, message))
    sink.use(MAIN, usage(0, 0, exact=False))


def session_of(around: dict[str, Any]) -> str:
    """Return the session that a checkpoint of /restore names; empty for a saved chat."""
    session, mark, _ = text_of(around.get("messageId")).partition(_BETWEEN)
    return session if mark else ""


def turn_of(value: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return role and parts of a turn, be it the API's or an item that the client showed."""
    if not isinstance(value, dict):
        return "", []
    if isinstance(value.get("role"), str):
        return value["role"], parts_of(value.get("parts"))
    kind, text = value.get("type"), value.get("text")
    if isinstance(text, str) and kind in ("user", "gemini", "gemini_content"):
        return "user" if kind == "user" else "model", [{"text": text}]
    return "", []
