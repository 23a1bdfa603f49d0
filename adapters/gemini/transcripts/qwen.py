"""Qwen Code's transcripts: rows with a uuid and a parent around the turns that the API is sent.

What stands simply there is read: prompts, answers, thoughts, calls, results, tokens. Rows of any
other kind are kept, hidden. A rewind is a branch, so what the last row does not descend from is
superseded (SPEC.md, "Gemini: forks").
"""

from __future__ import annotations

from agentsdir.adapters.gemini.transcripts.calls import elide_bodies
from agentsdir.adapters.gemini.transcripts.shapes import dict_of, parts_of, text_of
from agentsdir.adapters.gemini.transcripts.tokens import count_of, message_usage
from agentsdir.adapters.gemini.transcripts.turns import Turn, TurnWriter
from agentsdir.formats import times
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import read_rows
from agentsdir.formats.reading.sink import DROPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentsdir.adapters.contract import Transcript
    from agentsdir.formats.reading.rows import Row
    from agentsdir.formats.reading.sink import ParseSink
    from agentsdir.formats.reading.usage import Usage

# The kinds of user rows that a person typed; the others the client writes in the user's place.
_TYPED = ("", "at_command", "mid_turn_user_message")
_COUNTS = {
    "input": "promptTokenCount",
    "output": "candidatesTokenCount",
    "cached": "cachedContentTokenCount",
    "thoughts": "thoughtsTokenCount",
    "tool": "toolUsePromptTokenCount",
    "total": "totalTokenCount",
}


def read_qwen(transcript: Transcript, sink: ParseSink) -> None:
    """Read a transcript of Qwen Code."""
    source, tally = transcript.source, sink.tally
    writer = TurnWriter(sink, source.name, "")
    parents: dict[str, tuple[int, str | None]] = {}
    begins = [0]
    with source.open() as stream:
        for row in read_rows(stream, source.name, tally, sink.finding):
            value = row.value
            writer.session = writer.session or text_of(value.get("sessionId"))
            last = _write(writer, row, value, sink)
            begins.append(len(writer.handles))
            uuid, parent = value.get("uuid"), value.get("parentUuid")
            if isinstance(uuid, str):
                parents[uuid] = len(begins) - 2, parent if isinstance(parent, str) else None
            (tally.settle_hidden if last == DROPPED else tally.settle_parsed)(row)
            sink.client_version = text_of(value.get("version")) or sink.client_version
    writer.end()
    live = _live_rows(parents, len(begins) - 1)
    for number in range(len(begins) - 1):
        if number not in live:
            for handle in writer.handles[begins[number] : begins[number + 1]]:
                sink.supersede(handle)
    if not writer.visible:
        message = "the transcript holds no conversation"
        sink.finding(Finding("no-messages", source.name, None, None, None, message))


def _write(writer: TurnWriter, row: Row, value: dict[str, Any], sink: ParseSink) -> int:
    """Write one row; return its last visible block."""
    kind, message = text_of(value.get("type")), dict_of(value.get("message"))
    shown = dict_of(value.get("toolCallResult")).get("resultDisplay")
    turn = Turn(
        writer.names.unique(text_of(value.get("uuid")) or "row"),
        row,
        parts_of(message.get("parts")),
        times.native(value.get("timestamp")),
        text_of(value.get("model")) or None,
        elide_bodies(shown),
    )
    if kind == "user" and turn.parts and text_of(value.get("subtype")) in _TYPED:
        return writer.user(turn)
    if kind == "tool_result" and turn.parts:
        return writer.user(turn)
    if kind == "assistant" and turn.parts:
        last = writer.model(turn)
        used = _usage(value.get("usageMetadata"))
        if used is not None:
            sink.amend(last, usage=used)
            sink.use(MAIN, used)
        return last
    writer.log(turn, value, kind or None)
    return DROPPED


def _usage(counts: Any) -> Usage | None:
    if not isinstance(counts, dict):
        return None
    tokens = {ours: counts.get(theirs, 0) for ours, theirs in _COUNTS.items()}
    got, thoughts = count_of(tokens["output"]), count_of(tokens["thoughts"])
    # With models of other makers, the answer's count has the thoughts'.
    if count_of(tokens["total"]) == count_of(tokens["input"]) + got and thoughts <= got:
        tokens["output"] = got - thoughts
    return message_usage(tokens)


def _live_rows(parents: dict[str, tuple[int, str | None]], rows: int) -> set[int]:
    """Return the numbers of the rows that the last one descends from, and of rows without ids.

    Where a parent is not in the file, all rows before its child count.
    """
    live = set(range(rows)) - {number for number, _ in parents.values()}
    at = next(reversed(parents), None)
    while at is not None:
        number, parent = parents[at]
        if number in live:  # rows that name each other
            break
        live.add(number)
        if parent is not None and parent not in parents:
            live.update(range(number))
        at = parent if parent in parents else None
    return live
