"""One session of Claude Code read into a sink, as a whole or while it is written."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.claude.discover import FirstRows
from agentsdir.adapters.claude.emit import OpenCalls
from agentsdir.adapters.claude.rows import TranscriptParser
from agentsdir.adapters.claude.shapes import agent_id
from agentsdir.adapters.claude.subagents import Subagents
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.adapters.protocol import SessionFiles
    from agentsdir.formats.sink import BlockSink
    from agentsdir.formats.source import Source


_MAX_SIDECAR = 1024 * 1024
_CHILD = "agent-"  # how the names of subagents' files begin


def read_session(session: SessionFiles, sink: BlockSink) -> None:
    """Read the main transcript, then each subagent's, into `sink`."""
    calls, subagents = OpenCalls(sink), Subagents(sink)
    first: TranscriptParser | None = None
    for transcript in session.transcripts:
        source = transcript.source
        rows = FirstRows(source.head)
        try:
            own = own_session(rows, source.name)
            thread = None if transcript.role == "main" else thread_name(rows, source.name)
            meta = sidecar(transcript.sidecar)
        except AgentsdirError as error:
            if transcript.role == "main":
                raise
            # The rest of the session is read without a subagent's file that cannot be opened.
            sink.finding(Finding("unreadable", source.name, error.message))
            continue
        if thread is None:
            sink.open_main()
        parser = TranscriptParser(
            sink,
            calls,
            subagents,
            source.name,
            thread=thread,
            session=own,
            meta=meta,
        )
        parser.run(source)
        first = first or parser
    calls.finish()
    subagents.state()
    subagents.report()
    if first is not None:
        first.compare()


def own_session(rows: Iterable[dict[str, Any]], file: str) -> str:
    """Return the session id of a file, by its first rows; empty without one.

    A file may begin with a row of the session that it continues: then the file's name decides.
    """
    stem, first = PurePath(file).stem, None
    for row in rows:
        named = row.get("sessionId") or row.get("session_id")
        if not isinstance(named, str):
            continue
        if named == stem:
            return stem
        first = named if first is None else first
        if stem.startswith(_CHILD):  # no session has such an id
            break
    return first or ""


def thread_name(rows: Iterable[dict[str, Any]], file: str) -> str:
    """Return the agent id in a subagent's rows, else the one in its file's name."""
    for row in rows:
        found = agent_id(row.get("agentId"))
        if found:
            return found
    return agent_id(PurePath(file).stem.removeprefix(_CHILD)) or "subagent"


def sidecar(source: Source | None) -> dict[str, Any]:
    """Return the values of a subagent's sidecar; empty for none, or for one that is no object."""
    if source is None:
        return {}
    try:
        value = orjson.loads(source.head(_MAX_SIDECAR))
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


# A session that is read while it is written: files that lengthen and appear, or lines of stdout.
#
# All files share the calls, the subagents and the sink. Rows may come in any order among the files.
# `settle` states what they changed in earlier blocks, `finish` what only the end settles.


class SessionParser:
    """Parses the files of one session together, row by row.

    Args:
        sink: takes the blocks of the whole session, in general a `LiveSink`.
    """

    def __init__(self, sink: BlockSink) -> None:
        self._sink = sink
        self._calls = OpenCalls(sink)
        self._subagents = Subagents(sink)
        self._parsers: list[TranscriptParser] = []

    def open(
        self, file: str, *, thread: str | None = None, session: str = "", meta: Any = None
    ) -> TranscriptParser:
        """Begin a file: the main transcript, or stdout, where `thread` is None.

        Args:
            file: the file's name in blocks and findings.
            thread: the subagent of the file.
            session: the session id for rows that come before any that names one.
            meta: the sidecar of a subagent's file, if there is one yet.
        """
        if thread is None:
            self._sink.open_main()
        parser = TranscriptParser(
            self._sink,
            self._calls,
            self._subagents,
            file,
            thread=thread,
            session=session,
            meta=meta or {},
        )
        self._parsers.append(parser)
        return parser

    @property
    def is_out_of_order(self) -> bool:
        """Whether a subagent's file was read before the rows of the main transcript it repeats."""
        return self._subagents.copied_early

    def settle(self) -> None:
        """State what the rows so far mean for earlier blocks: links, statuses, branches."""
        for parser in self._parsers:
            parser.branches()
        self._subagents.state()

    def finish(self) -> None:
        """State what only the end settles; no row may follow. Children end before their parents."""
        for parser in reversed(self._parsers):
            parser.finish()
        self._calls.finish()
        self._subagents.state()
        self._subagents.report()
        for parser in self._parsers[:1]:
            parser.compare()
