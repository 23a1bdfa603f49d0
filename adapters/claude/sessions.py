"""One session of Claude Code, read into a sink: the main transcript, then each subagent's."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

import orjson

from agentsdir.adapters.claude.calls import Calls
from agentsdir.adapters.claude.detection import head_rows
from agentsdir.adapters.claude.reading import Reading
from agentsdir.adapters.claude.shapes import agent_id
from agentsdir.adapters.claude.subagents import Subagents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentsdir.adapters.contract import SessionFiles, Transcript
    from agentsdir.formats.reading.sink import ParseSink
    from agentsdir.formats.reading.source import Source

_MAX_SIDECAR = 1024 * 1024


def read_session(session: SessionFiles, sink: ParseSink) -> None:
    """Read the main transcript, then each subagent's, into `sink`."""
    calls, subagents = Calls(sink), Subagents(sink)
    for transcript in session.transcripts:
        source = transcript.source
        rows = list(head_rows(source.head()))
        thread = None
        if transcript.role == "main":
            sink.open_main()
        else:
            thread = _thread_name(rows, source)
        native = (row.get("sessionId") or row.get("session_id") for row in rows)
        Reading(
            sink,
            calls,
            subagents,
            source,
            thread=thread,
            session=next((name for name in native if isinstance(name, str)), ""),
            meta=_sidecar(transcript),
        ).run()
    calls.state()
    subagents.state()


def _thread_name(rows: list[dict[str, Any]], source: Source) -> str:
    """Return the agent id that a subagent's rows carry, else the one in its file's name."""
    for row in rows:
        found = agent_id(row.get("agentId"))
        if found:
            return found
    return agent_id(PurePath(source.name).stem.removeprefix("agent-")) or "subagent"


def _sidecar(transcript: Transcript) -> dict[str, Any]:
    if transcript.sidecar is None:
        return {}
    try:
        value = orjson.loads(transcript.sidecar.head(_MAX_SIDECAR))
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
