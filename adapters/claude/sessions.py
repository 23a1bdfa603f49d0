"""One session of Claude Code, read into a sink: the main transcript, then each subagent's."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.claude.calls import Calls
from agentsdir.adapters.claude.detection import first_rows
from agentsdir.adapters.claude.reading import Reading
from agentsdir.adapters.claude.shapes import agent_id
from agentsdir.adapters.claude.subagents import Subagents
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.reading.findings import Finding

if TYPE_CHECKING:
    from agentsdir.adapters.contract import SessionFiles
    from agentsdir.formats.reading.block_sink import BlockSink
    from agentsdir.formats.reading.source import Source

_MAX_SIDECAR = 1024 * 1024


def read_session(session: SessionFiles, sink: BlockSink) -> None:
    """Read the main transcript, then each subagent's, into `sink`."""
    calls, subagents = Calls(sink), Subagents(sink)
    first: Reading | None = None
    for transcript in session.transcripts:
        source = transcript.source
        try:
            rows = first_rows(source.head)
            meta = sidecar(transcript.sidecar)
        except AgentsdirError as error:
            if transcript.role == "main":
                raise
            # One subagent's file that the system refuses does not take the session with it.
            sink.finding(Finding("unreadable", source.name, None, None, None, error.message))
            continue
        thread = None
        if transcript.role == "main":
            sink.open_main()
        else:
            thread = thread_name(rows, source.name)
        reading = Reading(
            sink,
            calls,
            subagents,
            source.name,
            thread=thread,
            session=own_session(rows, source.name),
            meta=meta,
        )
        reading.run(source)
        first = first or reading
    calls.finish()
    subagents.state()
    subagents.report()
    if first is not None:
        first.compare()


def own_session(rows: list[dict[str, Any]], file: str) -> str:
    """Return which session a file is, by its first rows; empty where they do not say.

    A file may begin with a row of the session that it goes on from: then its name decides.
    """
    native = (row.get("sessionId") or row.get("session_id") for row in rows)
    named = [name for name in native if isinstance(name, str)]
    stem = PurePath(file).stem
    return stem if stem in named else next(iter(named), "")


def thread_name(rows: list[dict[str, Any]], file: str) -> str:
    """Return the agent id that a subagent's rows carry, else the one in its file's name."""
    for row in rows:
        found = agent_id(row.get("agentId"))
        if found:
            return found
    return agent_id(PurePath(file).stem.removeprefix("agent-")) or "subagent"


def sidecar(source: Source | None) -> dict[str, Any]:
    """Return what a subagent's sidecar says; nothing where there is none, or none to read."""
    if source is None:
        return {}
    try:
        value = orjson.loads(source.head(_MAX_SIDECAR))
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
