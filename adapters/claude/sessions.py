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
from agentsdir.adapters.protocol import ReaderState
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import lasting_stand_in, stand_in
from agentsdir.formats.rows import BEGINNING, LinePosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentsdir.adapters.protocol import SessionFiles, Transcript
    from agentsdir.formats.sink import BlockSink
    from agentsdir.formats.source import Source


_MAX_SIDECAR = 1024 * 1024
_CHILD = "agent-"  # how the names of subagents' files begin


def read_session(session: SessionFiles, sink: BlockSink) -> None:
    """Read the main transcript, then each subagent's, into `sink`."""
    parsers = _Parsers(sink, stand_in)
    for transcript in session.transcripts:
        if parser := parsers.open(transcript):
            parser.run(transcript.source)
            parser.finish()
    parsers.finish()


def resume_session(
    session: SessionFiles, sink: BlockSink, reading: ReaderState | None, *, keeps: bool
) -> ReaderState | None:
    """Read a session as `ResumableReader` says; its end is a snapshot.

    Subagents' files that were read before are passed over: only the calls and threads in them
    matter to other files. Rows of a file that is read again would come in another order.
    """
    parsers = _Parsers(sink, lasting_stand_in)
    known: dict[str, bool] = {}
    start = BEGINNING
    if reading is not None:
        known = parsers.resume(reading.state)
        start = LinePosition(*reading.state["place"])
    files: dict[str, bool] = {}
    place, state = None, None
    for transcript in session.transcripts:
        source, is_main = transcript.source, transcript.role == "main"
        if not is_main:
            files[source.name] = transcript.sidecar is not None
            if source.name in known:
                continue
        parser = parsers.open(transcript)
        if parser is None:
            return None
        if is_main and reading is not None:
            parser.resume(reading.state["main"])
        end = parser.run(source, start if is_main else BEGINNING)
        if is_main and keeps:
            place, state = end, parser.snapshot()
        parser.finish()
    if reading is not None:
        parsers.check_order(session)
        if any(files.get(name) is not has_sidecar for name, has_sidecar in known.items()):
            raise ValueError("a subagent's file is gone, or has another sidecar")
    shared = parsers.snapshot() if keeps else {}
    parsers.finish()
    if place is None or state is None:
        return None
    return ReaderState(place.offset, {"place": [*place], "files": files, "main": state, **shared})


class _Parsers:
    """The parsers of one session's files, and what they share.

    Args:
        stand_in: returns the number that stands for an id.
    """

    def __init__(self, sink: BlockSink, stand_in: Callable[[Any], int]) -> None:
        self._sink = sink
        self._stand_in = stand_in
        self._calls = OpenCalls(sink, stand_in)
        self._subagents = Subagents(sink)
        # The threads of files that were read before.
        self._before: frozenset[str] = frozenset()
        self._first: TranscriptParser | None = None

    def open(self, transcript: Transcript) -> TranscriptParser | None:
        """Return the parser of a file; None for one of a subagent that cannot be opened."""
        source, thread = transcript.source, None
        rows = FirstRows(source.head)
        try:
            own = own_session(rows, source.name)
            if transcript.role != "main":
                thread = thread_name(rows, source.name)
            meta = sidecar(transcript.sidecar)
        except AgentsdirError as error:
            if transcript.role == "main":
                raise
            # The rest of the session is read without it.
            self._sink.finding(Finding("unreadable", source.name, error.message))
            return None
        if thread is None:
            self._sink.open_main()
        elif thread in self._before:
            raise ValueError(f"a file of the thread {thread} was read before")
        self._subagents.file = source.name
        parser = TranscriptParser(
            self._sink,
            self._calls,
            self._subagents,
            source.name,
            thread=thread,
            session=own,
            meta=meta,
            stand_in=self._stand_in,
        )
        self._first = self._first or parser
        return parser

    def finish(self) -> None:
        """State what only the end of all files settles."""
        self._calls.finish()
        self._subagents.state()
        self._subagents.report()
        if self._first is not None:
            self._first.compare()

    def snapshot(self) -> dict[str, Any]:
        """Return as JSON what further rows need of what the files share, before `finish`."""
        return {"calls": self._calls.snapshot(), "subagents": self._subagents.snapshot()}

    def resume(self, state: dict[str, Any]) -> dict[str, bool]:
        """Continue after the files of a snapshot; return which these are, and have a sidecar."""
        self._calls.resume(state["calls"])
        self._subagents.resume(state["subagents"])
        self._before = frozenset(self._subagents.threads)
        return dict(state["files"])

    def check_order(self, session: SessionFiles) -> None:
        """Put what was read in the order of the files, where that is what a whole reading gives.

        Raises `ValueError` where the main transcript has rows of subagents, or that one copied.
        """
        if self._subagents.copied_early or (self._first and self._first.has_threads):
            raise ValueError("rows of the main transcript belong before a subagent's")
        self._subagents.arrange([transcript.source.name for transcript in session.transcripts])


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
