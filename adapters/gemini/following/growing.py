"""One transcript of Gemini CLI that grows: what its rows change is told, message by message.

A log restates its messages again and again, so each message that says something new is written out
as it stands then, and only what differs from what was told of it is news.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from agentsdir.adapters.contract import SessionFiles, Transcript
from agentsdir.adapters.gemini.transcripts.documents import document_rows
from agentsdir.adapters.gemini.transcripts.emit import Emitter
from agentsdir.adapters.gemini.transcripts.outputs import Outputs
from agentsdir.adapters.gemini.transcripts.restated import only_restates
from agentsdir.adapters.gemini.transcripts.sessions import read_session
from agentsdir.adapters.gemini.transcripts.shelf import Shelf
from agentsdir.adapters.gemini.transcripts.threads import Thread
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.live import LiveSink
from agentsdir.formats.reading.rows import LineFeed
from agentsdir.formats.reading.sink import ParseSink, encodable
from agentsdir.formats.reading.source import Source
from agentsdir.formats.reading.usage import add_usage, no_usage, usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.adapters.gemini.transcripts.index import Index
    from agentsdir.adapters.gemini.transcripts.messages import Message
    from agentsdir.adapters.gemini.transcripts.restated import Sign
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.book import Key
    from agentsdir.formats.reading.drift import Drifts
    from agentsdir.formats.reading.retelling import Retelling
    from agentsdir.formats.reading.sink import Conversation
    from agentsdir.formats.reading.stream import StreamEvent
    from agentsdir.formats.reading.usage import Usage


class _Gathering(LiveSink):
    """Takes the blocks of a few messages, whole; what they spent is counted at the end.

    Args:
        conversations: those of the whole session.
    """

    def __init__(self, *, hidden: bool, conversations: dict[str, Conversation]) -> None:
        super().__init__(hidden=hidden)
        self.conversations = conversations
        self._holds_usage = False
        self.held: tuple[Key, Usage] | None = None
        self._blocks: list[Block] = []

    def begin(self, *, holds_usage: bool) -> None:
        """Begin with a message; its usage may have to be held back (`held`)."""
        self._holds_usage = holds_usage
        self.held = None

    def add(self, block: Block) -> int:
        """Gather a block; hold its usage back if that is asked for."""
        if self._holds_usage and "usage" in block:
            self.held = (block["conversationId"], block["id"]), block.pop("usage")
        self._blocks.append(encodable(block))
        return len(self._blocks) - 1

    def amend(self, handle: int, **late: Any) -> None:
        """State fields of a gathered block."""
        self._blocks[handle].update(late)

    def blocks(self) -> list[Block]:
        """Return what was gathered since the last call."""
        blocks, self._blocks = self._blocks, []
        return blocks

    def use(self, conversation: str, usage: Usage) -> None:
        """Do nothing: a message that is written out again spends nothing again."""

    def spent(self, conversation: str, usage: Usage) -> None:
        """Tell what a conversation spent in all."""
        super().use(conversation, usage)


class _FreshShelf(Shelf):
    """A shelf on which the rows that came last still lie decoded."""

    def __init__(self, rows: BinaryIO, file: str, index: Index, fresh: dict[int, Any]) -> None:
        super().__init__(rows, file, index)
        self._fresh = fresh

    def row(self, number: int) -> Any:
        """Return the value of a row."""
        return self._fresh[number] if number in self._fresh else super().row(number)


class GrowingThread(Thread):
    """A transcript that is read while it is written.

    Args:
        file: the name that blocks and findings say.
        child: whether it is a subagent's.
        is_document: whether it is one JSON object, which is read once; else a log.
        hidden: tell blocks marked `hidden`.
        conversations: those of the whole session.
        told: what was told of this transcript so far.
    """

    def __init__(
        self,
        file: str,
        *,
        child: bool,
        is_document: bool,
        hidden: bool,
        conversations: dict[str, Conversation],
        told: Retelling,
    ) -> None:
        super().__init__(file, child=child, is_document=is_document, hidden=hidden)
        # (message id, call id) → the child thread's id and how long it ran.
        self.children: dict[tuple[str, str], tuple[str, int | None]] = {}
        self.sink = _Gathering(hidden=hidden, conversations=conversations)
        self._touched = self.fold.index.touched
        # Of copies of a file, one tells their thread; another may go on with what it told.
        self.told = told
        self._feed = LineFeed(file, self.sink.tally, self.sink.finding)
        self._fresh: dict[int, Any] = {}
        # The message that came last may yet grow: which block its usage is to stand on is open.
        self._held: tuple[str, Key, Usage] | None = None
        self._visible = False
        # What messages said so far. Those that say it again wait until it is clear whether they
        # are messages of their own, or rows that only write the history anew.
        self._signs: set[Sign] = set()
        self._waiting: set[str] = set()
        # How many of the messages that were none have been taken back.
        self._taken_back = 0

    @property
    def findings(self) -> list[Finding]:
        """What was wrong with the transcript so far."""
        return self.sink.findings

    @property
    def drifts(self) -> Drifts:
        """What of the transcript no reader knows."""
        return self.fold.index.drifts

    @property
    def has_news(self) -> bool:
        """Whether any message is not what was told of it."""
        return bool(self._touched)

    @property
    def is_half(self) -> bool:
        """Whether it is a document that somebody has not written to its end."""
        return any(finding.id == "half-document" for finding in self.findings)

    def take(self, line: bytes | int) -> None:
        """Read a line of a log; of one that is too long only the length came."""
        if isinstance(line, int):
            self._feed.pass_over(line)
            return
        session = self.fold.session_id
        begun = self.fold.index.begun
        for row in self._feed.rows(line):
            count = len(begun)
            self.fold.take(row)
            self._fresh[len(self.fold.index) - 1] = row.value
            for message in begun[count:]:
                self._look_for_restatement(message, row.value)
        if session != self.fold.session_id:
            self._touched.update(dict.fromkeys(self.fold.index.messages, True))

    def _look_for_restatement(self, message: Message, value: dict[str, Any]) -> None:
        """Let a new message wait if it says what others said; else let the waiting ones go."""
        if not message.texts or message.role == "notice":
            return
        is_row = "id" in value  # a list has the history as it is
        if is_row and message.usage is None and only_restates(value, self._signs):
            self._waiting.add(message.id)
        else:
            self._waiting.clear()
        self._signs.update((message.role, sign) for sign in message.texts)

    def take_document(self, data: bytes) -> None:
        """Read a whole document."""
        sink = self.sink
        for row in document_rows(data, self.file, sink.tally, sink.finding):
            self.fold.take_record(row)

    def tell(
        self, rows: BinaryIO, *, settled: bool = True, final: bool = False
    ) -> Iterator[StreamEvent]:
        """Write out every message that is not what was told of it; yield what is new.

        Args:
            rows: the transcript's bytes, seekable.
            settled: nobody is writing, so what a list left out is dropped. A client that resumes
                writes an empty list first, and the whole one a moment later.
            final: no row will follow.
        """
        index, sink, told = self.fold.index, self.sink, self.told
        index.settle_orphans()
        if final:
            for one in index.orphaned:
                if one.orphans:
                    index.touch(one.id)
        shelf = _FreshShelf(rows, self.file, index, self._fresh)
        outputs = Outputs(Path(self.file), self.fold.session_id, sink.finding)
        emitter = Emitter(
            self.fold,
            shelf,
            sink,
            self.conversation,
            self.children,
            outputs,
            settled=final or self.is_document,
        )
        if settled:
            self._waiting.clear()
        due = {
            one: None
            for one, says_more in self._touched.items()
            if settled or (says_more and one not in self._waiting)
        }
        newest = reversed(index.messages.values())
        last = next((one.id for one in newest if one.role != "record"), None)
        if last is not None and last in due and not final and index.messages[last].is_empty:
            del due[last]  # what it calls may yet come
        if self._held is not None:
            message_id, key, used = self._held
            if message_id in due:
                self._held = None
            elif final or message_id != last:
                self._held = None
                yield from told.amend(key, usage=used)
        yield from self.tell_bounds()
        for message_id in due:
            del self._touched[message_id]
            sink.begin(holds_usage=message_id == last and not final)
            emitter.message(index.messages[message_id])
            for block in sink.blocks():
                yield from told.restate(block)
            if sink.held is not None:
                self._held = message_id, *sink.held
        sink.begin(holds_usage=False)
        for message in index.dropped[self._taken_back :]:
            emitter.message(message)
            for block in sink.blocks():
                if (block["conversationId"], block["id"]) in told:
                    yield from told.restate(block)
        self._taken_back = len(index.dropped)
        self._visible = self._visible or emitter.visible
        index.begun.clear()
        self._fresh.clear()
        yield from self.tell_bounds(end=True)

    def hold_back(self) -> None:
        """Tell nothing: another file does, of which this is a copy."""
        self.fold.index.begun.clear()
        self._fresh.clear()

    def tell_anew(self) -> None:
        """Let the next `tell` write out every message that no other file tells."""
        self._touched.clear()
        self._touched.update((one.id, True) for one in self.own_messages)

    def tell_bounds(self, *, end: bool = False, final: bool = False) -> Iterator[StreamEvent]:
        """Yield what is new about how a subagent's thread starts, or how it ends, if it has."""
        if self.child and (not end or final or isinstance(self.fold.header.get("summary"), str)):
            yield from self.told.restate(self.bound("end" if end else "start"))

    def finish(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles, after the last `tell`."""
        yield from self.tell_bounds(end=True, final=True)
        if not self._visible and not self.is_copy:
            why = "the transcript holds no conversation"
            self.sink.finding(Finding("no-messages", self.file, None, None, None, why))
        for doubt in self.doubts():
            self.sink.finding(doubt)
        total = no_usage()
        for message in self.own_messages:
            if message.usage is not None:
                total = add_usage(total, message.usage)
        if self.counts_are_partial():
            total = add_usage(total, usage(0, 0, exact=False))
        self.sink.spent(self.conversation, total)
        yield from self.told.tell(self.sink.drain())
        yield from self.told.close()


class Snapshots:
    """A file with one thread and nothing to fold, which is read anew as a whole when it changed.

    Args:
        path: where the file is.
        hidden: tell blocks marked `hidden`.
        told: what was told of it so far.
    """

    def __init__(self, path: Path, *, hidden: bool, told: Retelling) -> None:
        self._path = path
        self._told = told
        self._hidden = hidden
        self._sink = ParseSink(hidden=hidden)

    @property
    def findings(self) -> list[Finding]:
        """What was wrong with the file when it was read last."""
        return self._sink.findings

    @property
    def drifts(self) -> Drifts:
        """What of the file, as it was read last, no reader knows."""
        return self._sink.drifts

    def read(self, data: bytes) -> Iterator[StreamEvent]:
        """Read the file as it is now; yield what is new."""
        told, sink = self._told, ParseSink(hidden=self._hidden)
        source = Source(str(self._path), path=self._path, data=data)
        read_session(SessionFiles((Transcript(source, "main"),)), sink)
        self._sink = sink
        told.again()
        for block in sink.blocks("all"):
            yield from told.restate(block)
        # Somebody may be writing it: what is not there yet may come.
        yield from told.settle(whole=data.rstrip().endswith((b"]", b"}")))

    def finish(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles."""
        for name, conversation in self._sink.conversations.items():
            usage = stream.metadata_update({"usage": conversation.usage}, name)
            yield from self._told.tell([usage])
        yield from self._told.close()
