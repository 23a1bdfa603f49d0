"""One transcript file: rows in, blocks out, every line settled once.

The file may lie there whole (`run`) or come row by row (`take`); either way `finish` says what only
the end tells, and `branches` may be asked for before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.claude import kinds, notes, stdout
from agentsdir.adapters.claude.assistant import read_assistant
from agentsdir.adapters.claude.classify import listen
from agentsdir.adapters.claude.emit import FOLDED, HIDDEN, LATER, PARSED, Emitter, Place
from agentsdir.adapters.claude.enqueued import Queue
from agentsdir.adapters.claude.shapes import (
    agent_id,
    identifier,
    is_row,
    mapping,
    part_text,
    parts,
    text,
)
from agentsdir.adapters.claude.tokens import Ledger, compare
from agentsdir.adapters.claude.tree import NOTED, PLAIN, PROMPT, Tree
from agentsdir.adapters.claude.user import read_user
from agentsdir.formats import times
from agentsdir.formats.digest import short_hash
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import read_rows
from agentsdir.formats.reading.sink import DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.adapters.claude.calls import Calls
    from agentsdir.adapters.claude.subagents import Subagents
    from agentsdir.formats.reading.block_sink import BlockSink
    from agentsdir.formats.reading.blocks import BlockSource
    from agentsdir.formats.reading.rows import Row
    from agentsdir.formats.reading.source import Source

    Reader = Callable[["Reading", dict[str, Any], "Place"], int]

# Rows that stand in the chain of messages, and stdout lines that correspond to them.
_CHAINED: dict[str, Reader] = {
    "user": read_user,
    "assistant": read_assistant,
    "system": notes.read_system,
    "attachment": notes.read_attachment,
    "progress": notes.read_progress,
}
_EVENTS: dict[str, Reader] = {
    "result": stdout.read_result,
    "auth_status": stdout.read_auth_status,
    "rate_limit_event": stdout.read_rate_limit,
}
# Why a row is hidden or folded if its reader does not say.
_REASONS = {HIDDEN: "bookkeeping", FOLDED: "repeated"}
_REASON_OF_ROW = {"stream_event": "partial-message", **dict.fromkeys(kinds.CONTROL, "control")}
# Rows with words for which the client asked a model, and no other row shows that it did.
_MADE_BY_A_MODEL = frozenset({"ai-title", "summary"})


def _words(value: dict[str, Any], pieces: list[Any]) -> Iterator[tuple[str, str]]:
    """Yield the type and the words of each block that a row gives, as far as it has words."""
    for part in pieces:
        said = part_text(part)
        if said is not None and value.get("type") == "user":
            voice, ((before, typed),) = listen(value, [said])
            if voice.is_person and not before:
                yield "user_message", typed
        elif said is not None:
            yield "assistant_text", said
        elif isinstance(part, dict) and part.get("type") == "thinking":
            yield "thinking", text(part.get("thinking"))


def _read_unknown(reading: Reading, value: dict[str, Any], place: Place) -> int:
    """Hide a row of a type that is not known, which stands in the chain."""
    reading.unknown("row", value["type"], place.source)
    return reading.emitter.log(place, 0, value)


class Reading:
    """The state of reading one file of a session.

    Args:
        sink: takes the blocks of the whole session.
        calls: the open tool calls of the whole session.
        subagents: the agent calls and threads of the whole session.
        file: the name that blocks and findings say.
        thread: the conversation that all rows belong to; None where the rows say it.
        session: the session id for rows that come before any that names one.
        meta: the sidecar of a subagent's file.
    """

    def __init__(
        self,
        sink: BlockSink,
        calls: Calls,
        subagents: Subagents,
        file: str,
        *,
        thread: str | None,
        session: str,
        meta: dict[str, Any],
    ) -> None:
        self.emitter = Emitter(sink)
        self.calls = calls
        self.subagents = subagents
        self.tokens = Ledger()
        self.queue = Queue(self)
        self.tree = Tree()
        self.version: str | None = None
        # Set by a row's reader for the tree: what the row is to it.
        self.mark = PLAIN
        # The last row that warns the model of a command which the row below it shows.
        self.caveat: str | None = None
        # What stdout lines said so far: an init, answers, and the agent of each call.
        self.started = False
        self.answers = False
        self.stdout_agents: dict[str, str] = {}
        tally = sink.tally
        # By outcome: PARSED, HIDDEN, FOLDED.
        self._settle_parsed = tally.settle_parsed
        self._settle_with_reason = {HIDDEN: tally.settle_hidden, FOLDED: tally.settle_folded}
        # Why the row at hand is hidden or folded; its reader sets it.
        self.reason = ""
        self._sink = sink
        self._file = file
        self._thread = thread
        self._session = session
        # The session of the first message, and whether one of another session was remarked on.
        self._home = session or None
        self._mixed = False
        self._meta = meta
        self._occurrences: dict[str, int] = {}
        self._sidechains: dict[str, str] = {}
        self._last_sidechain: str | None = None
        self._superseded: dict[int, str] = {}
        if thread is None:
            subagents.main_rows = self.tree.numbers

    def run(self, source: Source) -> None:
        """Read the whole file, and finish."""
        sink, read = self._sink, self._read
        tally = sink.tally
        with source.open() as stream:
            rows = read_rows(stream, self._file, sink.tally, sink.finding, is_record=is_row)
            for row in rows:
                outcome = read(row)
                if outcome == PARSED and not row.salvaged:
                    tally.parsed += 1  # by far the most, so without a call
                else:
                    self.settle(row, outcome)
        self.finish()

    def take(self, row: Row) -> None:
        """Read one row of a file that grows."""
        self.settle(row, self._read(row))

    def describe(self, meta: dict[str, Any]) -> None:
        """Take the sidecar of a subagent's file, which may come, or change, after its rows."""
        self._meta = meta
        thread = self.subagents.threads.get(self._thread or "")
        if thread is not None:
            thread.meta = meta
            self.subagents.changed = True

    def branches(self) -> None:
        """State which blocks stand on a replaced branch, as far as the rows tell."""
        now: dict[int, str] = {}
        for handle, reason in self.tree.superseded():
            now.setdefault(handle, reason)
        for handle in sorted(now.keys() - self._superseded.keys()):
            self._sink.supersede(handle, now[handle])
        # Only of a file that grows: what a rewind replaced may be gone on with after all.
        for handle in sorted(self._superseded.keys() - now.keys()):
            self._sink.amend(handle, superseded=False)
        self._superseded = now

    def finish(self) -> None:
        """Say what only the end of the file tells."""
        sink = self._sink
        self.queue.finish()
        self.branches()
        if self._thread is None:
            for finding in self.tree.findings(self._file):
                sink.finding(finding)
        self.tokens.state(sink, MAIN)
        self.subagents.close(self._file)
        if self.version is not None:
            sink.client_version = self.version

    def compare(self) -> None:
        """Hold the client's own count against all files; on stdout it is known to be better."""
        if not self.started:
            compare(self._sink, self._file)

    def written_by(self, version: str) -> None:
        """Note which client wrote the rows from here on; a file may span an upgrade."""
        self.version = version
        self.tokens.wrote(version)

    def settle(self, row: Row, outcome: int) -> None:
        """Count the line of `row`, unless it is to be counted later."""
        if outcome == PARSED:
            self._settle_parsed(row)
        elif outcome != LATER:
            reason = self.reason or _REASONS[outcome]
            self._settle_with_reason[outcome](row, reason)

    def unknown(self, what: str, name: str, source: BlockSource) -> None:
        """Note something of a kind that no known client writes.

        Args:
            what: what it is: a row, a subtype, an attachment, a part, …
            name: its kind, as the row says it.
            source: where it stands.
        """
        self.reason = "unknown"
        self._sink.drifts.note(what, name or "without type", source, self.version)

    def hide_part(self, place: Place, index: int, value: dict[str, Any], part: Any) -> int:
        """Log a part of a row's content that shows nothing; return `HIDDEN`."""
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if isinstance(kind, str) and kind in kinds.PARTS:
            self.reason = "part"
        else:
            self.unknown("part", text(kind), place.source)
        return self.emitter.log_part(place, index, value, part)

    def _read(self, row: Row) -> int:
        value = row.value
        self.reason = ""
        if "session_id" in value and "sessionId" not in value:
            value = stdout.normalise(value)
        kind = value.get("type")
        if type(kind) is not str:
            return self._bookkeep(row, value, "")
        reader = _CHAINED.get(kind)
        if reader is None:
            if "parentUuid" not in value:
                return self._bookkeep(row, value, kind)
            reader = _read_unknown  # others name it as their parent all the same
        version = value.get("version")
        if version != self.version and type(version) is str:
            self.written_by(version)
        uuid = value.get("uuid")
        if type(uuid) is not str or len(uuid) != 36 or not uuid.isascii():
            uuid = identifier(uuid)
        tree = self.tree
        thread = self._thread
        if uuid is not None and uuid in tree.numbers:
            if thread is not None:
                tree.begin_again(uuid)
            self.emitter.log(self._place(row, value, None, thread or MAIN), 0, row.value)
            if self._reword(value, tree.blocks_of(uuid)):
                self.reason = "rewritten"
            return FOLDED
        if thread is None and self.subagents.rows and uuid in self.subagents.rows:
            self.subagents.copied_early = True
        # A compaction's or a forked agent's file begins with rows of the thread it looks at.
        if thread is not None and uuid is not None and self.subagents.is_copy(uuid, self._file):
            self.reason = "copy"
            return FOLDED
        if thread is None:
            if value.get("isSidechain") is True:
                thread = self._sidechain(value, uuid, row)
            elif "parentToolUseID" in value and kind != "progress":
                thread = stdout.conversation_of(self, value)
            else:
                thread = MAIN
        place = self._place(row, value, uuid, thread)
        if place.session != self._home:
            self._note_session(row, place.session)
        emitter = self.emitter
        queue = self.queue
        if (queue.removed or queue.taken_in) and (thread is MAIN or self._thread is not None):
            queue.before(kind, value, place)
        if thread is not MAIN:
            self._open(thread, place, kind, value)
        emitter.first, emitter.count = DROPPED, 0
        self.mark = PLAIN
        outcome = reader(self, value, place)
        if self.mark == PROMPT:
            self.tokens.asked()
        elif self.mark == PLAIN and kind != "user":
            self.mark = NOTED
        if thread is MAIN:
            self.answers = self.answers or (outcome == PARSED and kind == "assistant")
            tree.add(uuid, row, self.mark, place.session, emitter.first, emitter.count)
        else:
            tree.add_aside(uuid, emitter.first, emitter.count)
        return outcome

    def _reword(self, value: dict[str, Any], handles: range) -> bool:
        """Give the blocks of a row the words of its repetition; return whether they are others.

        As in the client, a row keeps its place and has what was written last. Calls and results
        stay as they are: what was made of them is known by their ids.
        """
        pieces = parts(mapping(value.get("message")).get("content"))
        words = list(_words(value, pieces))
        if not len(words) == len(pieces) == len(handles):
            return False
        changed = [
            self._sink.reword(handle, kind, said)
            for handle, (kind, said) in zip(handles, words, strict=True)
        ]
        return any(changed)

    def _bookkeep(self, row: Row, value: dict[str, Any], kind: str) -> int:
        """Take a row outside the chain: queue, titles, snapshots, and all that is unknown."""
        if kind == "queue-operation":
            place = self._place(row, value, identifier(value.get("uuid")), self._thread or MAIN)
            self.reason = "queue"
            outcome = self.queue.take(row, value, place)
            operation = text(value.get("operation"))
            if operation not in kinds.QUEUE_OPERATIONS:
                self.unknown("queue operation", operation, place.source)
            # An entry that is shown later has the first ids of the row for its blocks.
            index = 2 * max(1, len(parts(value.get("content")))) if outcome == LATER else 0
            self.emitter.log(place, index, row.value)
            return outcome
        event = _EVENTS.get(kind)
        if event is not None and isinstance(value.get("sessionId"), str):
            place = self._place(row, value, identifier(value.get("uuid")), MAIN)
            return event(self, row.value, place)
        if kind == "last-prompt":
            leaf = value.get("leafUuid")
            if isinstance(leaf, str):
                self.tree.name_leaf(leaf)
        elif kind == "summary" and isinstance(value.get("leafUuid"), str):
            if value["leafUuid"] in self.tree.numbers:  # else it is an older file's
                self.tree.name_leaf(value["leafUuid"])
            self.tokens.set_aside()
        elif kind == "cost-state":
            self.tokens.note_cost(value.get("modelUsage"))
        elif kind in _MADE_BY_A_MODEL:
            self.tokens.set_aside()
        elif kind in _REASON_OF_ROW:
            self.reason = _REASON_OF_ROW[kind]
        elif kind not in kinds.ROWS:
            source: BlockSource = {
                "file": self._file,
                "line": row.line,
                "offset": row.offset,
                "length": row.length,
            }
            self.unknown("row", kind or "without type", source)
        if self._sink.wants_hidden:
            place = self._place(row, value, None, self._thread or MAIN)
            self.emitter.log(place, 0, row.value)
        return HIDDEN

    def _place(self, row: Row, value: dict[str, Any], uuid: str | None, conversation: str) -> Place:
        session = value.get("sessionId")
        if type(session) is str and session:
            self._session = session
        else:
            session = self._session
        _, line, offset, length, _, _, lossy = row
        source = {"file": self._file, "line": line, "offset": offset, "length": length}
        base = self._hash(row) if uuid is None else uuid
        timestamp = times.native(value.get("timestamp"))
        # What `Place(…)` does, without the Python call around it: this runs once per row.
        return tuple.__new__(Place, (base, conversation, session, timestamp, source, lossy))

    def _note_session(self, row: Row, session: str) -> None:
        """Remark once on a message of another session: two clients, or a copy, mixed them."""
        if self._home is None:
            self._home = session
        elif self._thread is None and not self._mixed:
            self._mixed = True
            message = f"a row of session {session} stands among those of {self._home}"
            finding = Finding(
                "mixed-sessions", self._file, row.line, row.offset, row.length, message
            )
            self._sink.finding(finding)

    def _hash(self, row: Row) -> str:
        """Name a row without uuid by its bytes, so that no repair of other lines moves it."""
        digest = short_hash(row.raw.removesuffix(b"\n"))
        occurrence = self._occurrences.get(digest, 0)
        self._occurrences[digest] = occurrence + 1
        return f"h{digest}:{occurrence}"

    def _sidechain(self, value: dict[str, Any], uuid: str | None, row: Row) -> str:
        """Return the thread of a subagent's row in the main file: by agent id, else by root."""
        thread = agent_id(value.get("agentId"))
        if thread is None:
            parent = value.get("parentUuid")
            known = self._sidechains.get(parent) if isinstance(parent, str) else None
            if known is None and parent is not None:
                known = self._last_sidechain
            thread = known or f"sidechain-{agent_id(uuid) or self._hash(row)}"
        if uuid is not None:
            self._sidechains[uuid] = thread
        self._last_sidechain = thread
        return thread

    def _open(self, name: str, place: Place, kind: str, value: dict[str, Any]) -> None:
        thread = self.subagents.open(name, place, self._file, self._meta)
        if thread.prompt is None and kind == "user":
            message = value.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            first = next((piece for piece in map(part_text, parts(content)) if piece), "")
            thread.prompt = text(first)
            self.subagents.changed = True
