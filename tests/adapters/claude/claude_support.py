"""Making Claude rows and parsing them, for the tests of this folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.protocol import SessionFiles, Transcript, TranscriptReader
from agentsdir.formats.blocks import Block
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "claude"
# Each of these is one session: a file, or a folder with its subagents.
SINGLE = sorted(
    path
    for path in FIXTURES.iterdir()
    if path.name not in ("recorded", "damaged") and not path.name.endswith(".blocks.jsonl")
)
SESSION = "00000001-0000-4000-8000-000000000001"


def reader() -> TranscriptReader:
    """Return the reader under test."""
    assert ARCHITECTURE.reader is not None
    return ARCHITECTURE.reader


def parse(*files: bytes, hidden: bool = False) -> ParseSink:
    """Parse a main transcript and its children from memory."""
    sources = [Source(f"{index}.jsonl", data=data) for index, data in enumerate(files)]
    transcripts = [
        Transcript(source, "subagent" if index else "main") for index, source in enumerate(sources)
    ]
    sink = ParseSink(hidden=hidden)
    reader().parse_transcripts(SessionFiles(tuple(transcripts)), sink)
    return sink


def parse_alone(data: bytes) -> ParseSink:
    """Parse one file as if it came from standard input."""
    (files,) = reader().discover([Source("-", data=data)])
    sink = ParseSink()
    reader().parse_transcripts(files, sink)
    return sink


def lines(*rows: dict[str, Any]) -> bytes:
    """Return rows as a transcript."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def row(kind: str, uuid: str, parent: str | None, **more: Any) -> dict[str, Any]:
    """Return a row of the chain."""
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": kind,
        "uuid": uuid,
        "sessionId": SESSION,
        "version": "2.1.98",
        "timestamp": "2026-01-02T03:04:05.678Z",
        **more,
    }


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    """Return a `user` row."""
    return row("user", uuid, parent, message={"role": "user", "content": content}, **more)


def said(uuid: str, parent: str | None, *content: Any, **message: Any) -> dict[str, Any]:
    """Return an `assistant` row; strings are text parts, `message` overrides message fields."""
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    usage = {"input_tokens": 1, "output_tokens": 2}
    filled = {
        "id": f"msg_{uuid}", "role": "assistant", "model": "m", "content": parts,
        "stop_reason": "end_turn", "usage": usage, **message,
    }  # fmt: skip
    return row("assistant", uuid, parent, message=filled)


def call(tool_use_id: str, name: str = "Bash", **given: Any) -> dict[str, Any]:
    """Return a `tool_use` part."""
    return {"type": "tool_use", "id": tool_use_id, "name": name, "input": given}


def result(tool_use_id: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    """Return a `tool_result` part."""
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": content, **more}


def of_type(sink: ParseSink, kind: str, view: str = "live") -> list[Block]:
    """Return the blocks of one type, in order."""
    return [block for block in sink.blocks(view) if block["type"] == kind]  # type: ignore[arg-type]


def prompts(sink: ParseSink, view: str = "live") -> list[Any]:
    """Return what was typed on the main thread."""
    found = of_type(sink, "user_message", view)
    return [block["content"] for block in found if block["conversationId"] == "main"]


def balanced(sink: ParseSink) -> bool:
    """Tell whether every line went exactly one way."""
    tally = sink.tally
    return tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
