"""``logs.json``: the prompts that were typed at the client, of all sessions of a project.

It has no answers. Where a session's own file is gone, it is all that is left of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.transcripts.lists import ListDocument
from agentsdir.adapters.gemini.transcripts.shapes import content_id
from agentsdir.adapters.gemini.transcripts.speakers import names_command
from agentsdir.adapters.gemini.transcripts.turns import Turn, TurnWriter
from agentsdir.formats import times
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import Tally
from agentsdir.formats.reading.usage import usage

if TYPE_CHECKING:
    from agentsdir.adapters.contract import Transcript
    from agentsdir.formats.reading.sink import ParseSink


def read_prompt_log(transcript: Transcript, sink: ParseSink) -> None:
    """Read all prompts but those that other files tell (`Transcript.told`).

    `told` has the ids of sessions, and of single entries what `content_id` makes of them. Prompts
    that a rewind took out of their session's file (`Transcript.rewound`) are superseded.

    Each block says the session it belongs to (docs/clients/gemini.md, "Last resorts").
    """
    source, tally = transcript.source, sink.tally
    writer = TurnWriter(sink, source.name, "")
    for row in ListDocument(source.document()).rows(("",), source.name, tally, sink.finding):
        value = row.value
        entry = content_id(value)
        if not is_prompt(value):
            kind = "object" if isinstance(value, dict) else type(value).__name__
            writer.unknown(Turn(entry, row, []), value, "entry", kind)
            tally.settle_hidden(row, "unknown")
        elif entry in transcript.told:
            tally.settle_folded(row, "told-elsewhere")
        elif str(value["sessionId"]) in transcript.told and entry not in transcript.rewound:
            tally.settle_folded(row, "not-in-session")
        else:
            writer.session = str(value["sessionId"])
            key = writer.names.unique(entry_of(value))
            timestamp = times.native(value.get("timestamp"))
            turn = Turn(key, row, [{"text": value["message"]}], timestamp)
            if value.get("type", "user") != "user":
                writer.drift(turn, "entry", value["type"])
            if names_command(value["message"]):
                writer.command(turn, value["message"])
            else:
                first = len(sink)
                writer.user(turn)
                for handle in range(first, len(sink)) if entry in transcript.rewound else ():
                    sink.supersede(handle, "rewind")
            tally.settle_parsed(row)
    message = "prompts alone; no answers are kept here"
    sink.finding(Finding("last-resort", source.name, None, None, None, message))
    sink.use(MAIN, usage(0, 0, exact=False))


def is_prompt(value: Any) -> bool:
    """Tell whether an entry of a list is one of this file's.

    The first clients used the time of their start, a number, as the session's id.
    """
    return (
        isinstance(value, dict)
        and type(value.get("sessionId")) in (str, int)
        and type(value.get("messageId")) is int
        and isinstance(value.get("message"), str)
    )


def entry_of(value: dict[str, Any]) -> str:
    """Return what names an entry: its session and its number there."""
    return f"{value['sessionId']}/{value['messageId']}"


def prompts_in(data: bytes) -> list[dict[str, Any]]:
    """Return the prompts in the file."""
    rows = ListDocument(data).rows(("",), "", Tally(), lambda _finding: None)
    return [row.value for row in rows if is_prompt(row.value)]
