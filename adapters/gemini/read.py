"""Sessions of Gemini CLI read into a sink, each transcript as a thread."""

from __future__ import annotations

from array import array
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from agentsdir.adapters.gemini.checkpoints import read_checkpoint, read_prompt_log
from agentsdir.adapters.gemini.discover import (
    CHECKPOINT,
    DOCUMENT,
    PROMPTS,
    QWEN,
    REPORT,
    STREAM,
    family_of,
)
from agentsdir.adapters.gemini.documents import document_rows
from agentsdir.adapters.gemini.emit import MessageWriter, OutputFiles, in_order
from agentsdir.adapters.gemini.fold import Fold, NotAvailableYet, RowCache, RowDecoder
from agentsdir.adapters.gemini.qwen import read_qwen
from agentsdir.adapters.gemini.shapes import doubtful, moment_of, text_of, total_usage
from agentsdir.adapters.gemini.stdout import read_report, read_stream
from agentsdir.adapters.protocol import ReaderState
from agentsdir.formats import times
from agentsdir.formats.blocks import MAIN, make_block, usage
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import short_hash
from agentsdir.formats.rows import BEGINNING, LinePosition, end_of, read_rows
from agentsdir.formats.sink import Link
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agentsdir.adapters.gemini.shapes import ChatMessage
    from agentsdir.adapters.protocol import SessionFiles, Transcript
    from agentsdir.formats import blocks
    from agentsdir.formats.blocks import Block
    from agentsdir.formats.sink import ParseSink

    OneThread = TypeVar("OneThread", bound="GeminiThread")


# One transcript as a thread, and the links between calls and threads.

# The ids of the first agents with files of their own were this short; a longer one in a document
# is the parent's.
_SHORT_ID = 8
# The beginning of the folder names of agents that the client starts itself.
_SKILLS = "skill-extraction-"


class GeminiThread:
    """The thread of one transcript: its owner, its beginning and its end.

    Args:
        file: the transcript's name.
        child: whether it is a subagent's.
        is_document: whether it is one JSON object, else a log.
        hidden: whether rows that give hidden blocks alone are wanted.
    """

    def __init__(self, file: str, *, child: bool, is_document: bool, hidden: bool) -> None:
        self.file = file
        self.fold = Fold(file, hidden=hidden)
        self.child = child
        self.is_document = is_document
        # The name of the subagent and its link, from its parent.
        self.name = ""
        self.link = unlinked(file)
        self.conversation = MAIN
        # Whether a fuller file has the same thread, and the messages that it has.
        self.is_copy = False
        self.repeated: set[str] = set()

    def own_id(self) -> str:
        """Return the id of the transcript's conversation, by the rows so far.

        A subagent has its own session id, or one made of its beginning if it has its parent's.
        """
        if not self.child:
            return MAIN
        session = self.fold.session_id
        if session and not (self.is_document and len(session) > _SHORT_ID):
            return session
        messages = self.fold.index.messages.values()
        first = next((message.id for message in messages if message.role != "record"), "")
        start = text_of(self.fold.header.get("startTime"))
        return "agent-" + short_hash(f"{session}\0{start}\0{first}".encode("utf-8", "replace"))

    @property
    def own_messages(self) -> Iterable[ChatMessage]:
        """The messages that are in no other file."""
        messages = self.fold.index.messages.values()
        if not self.repeated:
            return messages
        return [one for one in messages if one.id not in self.repeated]

    @property
    def has_own_messages(self) -> bool:
        """Whether a copy has a message that is in no other file."""
        return any(one.role != "record" for one in self.own_messages)

    def span(self) -> tuple[datetime, datetime] | None:
        """Return the times of the first and the last message."""
        moments = [
            moment
            for message in self.fold.index.messages.values()
            if (moment := moment_of(message.timestamp)) is not None
        ]
        return (min(moments), max(moments)) if moments else None

    def took(self) -> int | None:
        """Return how long the thread ran, in milliseconds."""
        span = self.span()
        return None if span is None else (span[1] - span[0]) // timedelta(milliseconds=1)

    def is_nested_in(self, main: GeminiThread) -> bool:
        """Tell whether the file is in the folder of `main`'s subagents."""
        return PurePath(self.file).parent.name == main.fold.session_id

    def bound(self, which: str) -> Block:
        """Return the first or last block of a subagent's thread; `which` is "start" or "end"."""
        span = self.span()
        fields: dict[str, Any] = {"subtype": f"session_{which}"}
        name = f"Subagent {self.name}" if self.name else "Subagent"
        if which == "start":
            fields["message"] = f"{name} started"
            moment = times.native(self.fold.header.get("startTime"))
        else:
            fields["message"] = f"{name} ended"
            moment = times.to_text(span[1]) if span else None
            summary = self.fold.header.get("summary")
            if isinstance(summary, str):
                fields["message"] = f"{name} completed"
                fields["metadata"] = {"result": summary}
        return make_block(
            "system",
            f"{self.conversation}:{which}",
            self.conversation,
            self.fold.session_id,
            moment,
            None,
            **fields,
        )

    def doubts(self) -> Iterator[Finding]:
        """Yield a finding for each shown prompt that may be the client's."""
        index = self.fold.index
        for message_id, ((number, _), why) in index.doubts.items():
            if message_id in self.repeated:
                continue
            yield doubtful(
                self.file, index.line[number], index.offset[number], index.length[number], why
            )

    def counts_are_partial(self) -> bool:
        """Tell whether the token counts are a lower bound.

        Clients up to 0.30 merge turns that only call tools into one message with one count. Their
        documents have no `kind`. Merged messages look like others, so any call makes the counts of
        such a document a lower bound.
        """
        models = [one for one in self.own_messages if one.role == "model" and not one.continues]
        if any(one.tokens is None for one in models) or self._awaits_an_answer():
            return True
        old = self.is_document and "kind" not in self.fold.header
        return old and any(one.calls for one in models)

    def _awaits_an_answer(self) -> bool:
        """Whether a prompt has no answer, or the last answer called a tool and nothing followed.

        The model may have been called all the same: a run was killed, or failed. A subagent's last
        answer is always such a call.
        """
        waiting = False
        for message in self.own_messages:
            if message.role == "model":
                waiting = bool(message.calls) and not self.child
            elif message.asks:
                if waiting and not message.answers:  # hints are beside the results
                    return True
                waiting = True
        return waiting


def fullness(thread: GeminiThread) -> tuple[int, bool, bool, str]:
    """Return a sort key for the copies of a file: the one with most rows first.

    Rows of metadata, which are not always read, do not count, except for the summary at the end.
    """
    fold = thread.fold
    rows = len(fold.index) - fold.amending["metadata"]
    is_renamed = PurePath(thread.file).stem != fold.session_id
    return -rows, "summary" not in fold.header, is_renamed, thread.file


def separate_copies(children: Iterable[OneThread]) -> list[tuple[OneThread, OneThread]]:
    """Give each child its id; of several files with one id, keep in each what no fuller one has.

    The fullest file is the thread of that id; the rest of another file is a thread with a number.

    Returns:
        Each child that is not the fullest of its id, with the fullest one.
    """
    by_id: dict[str, list[OneThread]] = {}
    for child in children:
        child.conversation = child.own_id()
        child.is_copy, child.repeated = False, set()
        by_id.setdefault(child.conversation, []).append(child)
    copies = []
    for name, threads in by_id.items():
        if len(threads) == 1:
            continue
        first, *rest = sorted(threads, key=fullness)
        known_versions = {message.id: [message] for message in first.fold.index.messages.values()}
        number = 1
        for copy in rest:
            copy.is_copy = True
            for message in copy.fold.index.messages.values():
                versions = known_versions.setdefault(message.id, [])
                if any(message.says_no_more_than(one) for one in versions):
                    copy.repeated.add(message.id)
                    continue
                if any(message.tokens == one.tokens for one in versions):  # they were counted once
                    message.usage = None
                    copy.fold.index.touch(message.id)
                versions.append(message)
            number += copy.has_own_messages
            copy.conversation = f"{name}~{number}"
            copies.append((copy, first))
    return copies


def link_children(
    main: GeminiThread, children: Sequence[GeminiThread]
) -> dict[tuple[str, str], tuple[str, int | None]]:
    """Link each child to the call that started it; return (message id, call id) → (id, ms).

    An id in the call is exact. Without one, a call is linked whose time includes the child's, and
    the folder makes that likely. Without times, the only call that is left and the only child that
    is left in the session's folder are linked.
    """
    spawned = [
        (message, bare, call.spawn)
        for message in main.fold.index.messages.values()
        for bare, call in message.calls.items()
        if call.spawn is not None
    ]
    linked: dict[tuple[str, str], tuple[str, int | None]] = {}
    late: list[GeminiThread] = []
    for child in children:
        child.link, child.name = unlinked(child.file), ""
        for message, bare, spawn in spawned:
            if spawn.agent_id is not None and spawn.agent_id == child.conversation:
                child.link, child.name = Link("agentId", "exact"), spawn.name
                linked[message.id, bare] = child.conversation, child.took()
                break
        else:
            late.append(child)
    for child in late:
        for message, bare, spawn in spawned:
            free = spawn.agent_id is None and (message.id, bare) not in linked
            if free and _holds(message, spawn.ended, child):
                nested = child.is_nested_in(main)
                child.link = Link("directory+time", "likely") if nested else Link("time", "guess")
                child.name = spawn.name
                linked[message.id, bare] = child.conversation, child.took()
                break
    left = [
        (message, bare, spawn)
        for message, bare, spawn in spawned
        if spawn.agent_id is None and (message.id, bare) not in linked
    ]
    alone = [one for one in late if one.link.method == "none" and one.is_nested_in(main)]
    if len(left) == len(alone) == 1:
        ((message, bare, spawn),), (child,) = left, alone
        child.link, child.name = Link("directory", "guess"), spawn.name
        linked[message.id, bare] = child.conversation, child.took()
    return linked


def unlinked(file: str) -> Link:
    """Return the link of a child without a call; the client starts some threads itself."""
    purpose = PurePath(file).parent.name.startswith(_SKILLS)
    return Link(_SKILLS.rstrip("-") if purpose else "none", "none")


def _holds(message: ChatMessage, ended: Any, child: GeminiThread) -> bool:
    begin, end, span = moment_of(message.timestamp), moment_of(ended), child.span()
    return (
        begin is not None
        and end is not None
        and span is not None
        and (begin <= span[0] and span[1] <= end)
    )


# One transcript file that is read as a whole, most rows decoded once.
#
# A message is usually complete when the next one begins. Its blocks are written then, from rows
# that are still decoded. A later change (a resume with more detail), and what only the end shows (a
# subagent's thread, a file with a whole output), makes the message stale: it is written again at
# the end, from rows that are read again, and takes its place in the order.

# How many bytes of rows may be kept decoded for a message that grows and grows.
MAX_HELD_BYTES = 16 * 1024 * 1024
# How many messages are written at once.
MESSAGES_AT_ONCE = 4
# In the place of a mark of blocks that were written again.
_VOID = -(2**62)


class _DeferredOutputFiles(OutputFiles):
    """Stands in for `OutputFiles` during the first read."""

    def whole(self, output: str, source: blocks.BlockSource) -> None:
        """Raise `NotAvailableYet` for an output that may have a file of its own."""
        raise NotAvailableYet


class ParsedThread(GeminiThread):
    """A transcript that is read as a whole.

    Args:
        transcript: the file.
        sink: takes the blocks in the order of reading; `write` arranges them.
        keeps: whether `state` is wanted, where this reading ends.
        known: where an earlier reading ended. The blocks are then those of later rows, and of
            messages of which these say more.
    """

    def __init__(
        self,
        transcript: Transcript,
        sink: ParseSink,
        *,
        keeps: bool = False,
        known: dict[str, Any] | None = None,
    ) -> None:
        source = transcript.source
        self._path = source.path
        self._source = source
        self._sink = sink
        with source.open() as stream:
            is_document = family_of(stream.read(65536)) == DOCUMENT
            child = transcript.role == "subagent"
            hidden = sink.wants_hidden
            super().__init__(source.name, child=child, is_document=is_document, hidden=hidden)
            start, index = BEGINNING, self.fold.index
            if known is not None:
                start = LinePosition(*known["place"])
                self.fold.resume(known["fold"])
            # How many messages the earlier reading had.
            self._known = len(index.messages)
            self.state: dict[str, Any] | None = None
            self._row_cache = RowCache(None, self.file, index)
            outputs = _DeferredOutputFiles(None, "", sink.finding)
            self._writer = MessageWriter(self.fold, self._row_cache, sink, "", None, outputs)
            # By message number, from `_known` on: the handle and the mark that its blocks begin
            # with.
            self._handles, self._marks = array("q"), array("q")
            self._stale: set[str] = set()
            # The session and conversation that the blocks say.
            self._said = self.fold.session_id, MAIN
            stream.seek(start.offset)
            if is_document:
                data = source.document()
                # Clients replace a document as a whole, so its bytes are kept.
                self._source = Source(self.file, data=data)
                rows = document_rows(data, self.file, sink.tally, sink.finding)
                take = self.fold.take_record
            else:
                loads = RowDecoder(skips=not hidden).decode
                rows = read_rows(
                    stream,
                    self.file,
                    sink.tally,
                    sink.finding,
                    loads=loads,
                    unread="metadata",
                    start=start,
                )
                take = self.fold.take
            before = sink.tally.lines
            new_messages, kept, held = index.new_messages, self._row_cache.kept, 0
            for number, row in enumerate(rows, len(index)):
                take(row)
                kept[number] = row.value
                held += row.length
                if len(new_messages) > MESSAGES_AT_ONCE or held > MAX_HELD_BYTES:
                    self._settle(len(new_messages) - 1)
                    self._row_cache.release()
                    held = row.length
            if keeps and not is_document:
                end = end_of(stream, start.lines + sink.tally.lines - before)
                self.state = self._state_at(end)
        index.settle_orphans()
        self._settle(len(index.new_messages))
        self._handles.append(len(sink))
        self._marks.append(len(self._writer.marks))
        self.conversation = self.own_id()

    def _state_at(self, end: LinePosition | None) -> dict[str, Any] | None:
        """Return where the reading ended as JSON; None where that is no place to go on from."""
        fold = self.fold.snapshot() if end is not None else None
        return None if end is None or fold is None else {"place": [*end], "fold": fold}

    def _settle(self, count: int) -> None:
        """Write the first `count` new messages; note which earlier ones have new content."""
        index, writer, stale = self.fold.index, self._writer, self._stale
        handles, marks, sink = self._handles, self._marks, self._sink
        written = len(handles)
        for message_id, says_more in index.touched.items():
            if says_more and index.messages[message_id].number < self._known + written:
                stale.add(message_id)
        index.touched.clear()
        if count <= 0:
            return
        if not written:
            writer.conversation = self.own_id()
            self._said = self.fold.session_id, writer.conversation
        for message in index.new_messages[:count]:
            handles.append(len(sink))
            marks.append(len(writer.marks))
            if message.texts or message.role != "user" or message.orphans or message.extras:
                try:
                    writer.write(message)
                except NotAvailableYet:
                    stale.add(message.id)
        del index.new_messages[:count]

    def write(
        self, sink: ParseSink, children: Mapping[tuple[str, str], tuple[str, int | None]]
    ) -> None:
        """Arrange all blocks, settle all rows, and count all tokens."""
        index, writer = self.fold.index, self._writer
        writer.conversation, writer.children = self.conversation, children
        writer.outputs = OutputFiles(self._path, self.fold.session_id, sink.finding)
        if self._said != (self.fold.session_id, self.conversation):
            self._stale = set(index.messages)
        self._stale.update(index.touched)
        for message in index.dropped:
            self._void(message.number)
        with self._source.open() as stream:
            self._row_cache.read_from(stream)
            runs: list[range] = []
            if self.child:
                runs.append(_run(sink.add(self.bound("start"))))
            begin = end = 0
            for message in in_order(self.fold):
                if message.number < self._known and message.id not in self._stale:
                    continue  # the earlier reading had its blocks
                if message.id in self.repeated:
                    self._void(message.number)
                    continue
                run = self._run_of(message)
                if run[0] != end:
                    runs.append(range(begin, end))
                    begin = run[0]
                end = run[1]
            runs.append(range(begin, end))
            if self.child:
                runs.append(_run(sink.add(self.bound("end"))))
        sink.arrange(runs)
        for doubt in self.doubts():
            sink.finding(doubt)
        self._settle_rows()
        used = total_usage(message.usage for message in self.own_messages)
        if used is not None:
            sink.use(self.conversation, used)
        if sink.messages is not None:
            for message in self.own_messages:
                if message.usage is not None:
                    writer.note_copy(message, message.usage)
        if self.counts_are_partial():
            sink.use(self.conversation, usage(0, 0, exact=False))

    def pass_over(self) -> None:
        """Count the rows of a copy without blocks."""
        self._writer.marks = array("q")
        self._settle_rows()

    def _run_of(self, message: ChatMessage) -> tuple[int, int]:
        """Return the handles of a message's blocks, which are written again if they are stale."""
        sink = self._sink
        if message.id in self._stale:
            begin = len(sink)
            self._void(message.number)
            self._writer.write(message)
            end = len(sink)
        else:
            number = message.number - self._known
            begin, end = self._handles[number], self._handles[number + 1]
        if not self.fold.is_live(message):
            for handle in range(begin, end):
                sink.supersede(handle, self.fold.left_by(message))
        return begin, end

    def _void(self, number: int) -> None:
        """Remove the marks of a message's blocks."""
        marks = self._writer.marks
        number -= self._known
        if number < 0:
            return
        for at in range(self._marks[number], self._marks[number + 1]):
            marks[at] = _VOID

    def _settle_rows(self) -> None:
        """Count each row by its blocks, if all rows were read here."""
        if self._known:
            return
        index, tally = self.fold.index, self._sink.tally
        marks = set(self._writer.marks)
        marks.discard(_VOID)
        visible = {mark for mark in marks if mark >= 0}
        parsed = visible - index.salvaged
        hidden = {~mark for mark in marks if mark < 0} - parsed - index.salvaged
        tally.parsed += len(parsed)
        for row in hidden:
            tally.hide(self._writer.reasons[row])
        folded = len(index.line) - len(index.salvaged) - len(parsed) - len(hidden)
        for reason, rows in self.fold.amending.items():
            tally.fold(reason, rows)
        why = "copy" if self.is_copy else "repeated"
        tally.fold(why, folded - self.fold.amending.total())
        self._sink.drifts.add(index.drifts)
        if not visible and not self.is_copy:
            why = "the transcript holds no conversation"
            self._sink.finding(Finding("no-messages", self.file, why))


def _run(handle: int) -> range:
    return range(handle, handle + 1)


# One session: the main thread, then its subagents' threads.


class EarlierThread(GeminiThread):
    """The thread of a subagent's file that was read before, of which only the links are kept."""

    def __init__(self, file: str, conversation: str, span: Sequence[str]) -> None:
        super().__init__(file, child=True, is_document=False, hidden=False)
        self.conversation = conversation
        self._span = None
        if span:
            begin, end = map(datetime.fromisoformat, span)
            self._span = begin, end

    def span(self) -> tuple[datetime, datetime] | None:
        return self._span


def _link_state(thread: GeminiThread) -> list[Any]:
    """Return the arguments of an `EarlierThread` as JSON."""
    moments = [moment.isoformat() for moment in thread.span() or ()]
    return [thread.file, thread.conversation, moments]


def read_session(session: SessionFiles, sink: ParseSink) -> None:
    """Read a session into `sink`: the main thread, then its subagents' in the order given."""
    resume_session(session, sink, None, keeps=False)


def resume_session(
    session: SessionFiles, sink: ParseSink, reading: ReaderState | None, *, keeps: bool
) -> ReaderState | None:
    """Read a session as `ResumableReader` says, from `reading` on if that is of a log.

    Of a subagent's file that was read before, only what links it to a call is kept.
    """
    known = None if reading is None else reading.state
    for remark in session.remarks:
        sink.finding(remark)
    first = session.transcripts[0]
    family = family_of(first.source.head())
    alone = _reader_of(family)
    if alone is not None:
        sink.open_main()
        alone(first, sink)
        return None
    files = [transcript.source.name for transcript in session.transcripts]
    earlier: dict[str, EarlierThread] = {}
    if known is not None:
        earlier = {file: EarlierThread(file, *link) for file, *link in known["threads"]}
    threads = [
        ParsedThread(transcript, sink, known=known if transcript is first else None, keeps=keeps)
        for transcript in session.transcripts
        if transcript.source.name not in earlier
    ]
    main = None if threads[0].child else threads[0]
    children = list(threads) if main is None else threads[1:]
    copies = separate_copies(children)
    firsts = [one for one in children if all(one is not copy for copy, _ in copies)]
    linkable: list[GeminiThread] = sorted(
        [*earlier.values(), *firsts], key=lambda one: files.index(one.file)
    )
    if len({one.conversation for one in linkable}) < len(linkable):
        raise ValueError("a file of this thread was read before")
    linked = {} if main is None else link_children(main, linkable)
    for copy, fullest in copies:
        copy.link, copy.name = fullest.link, fullest.name
        if not copy.has_own_messages:
            copy.pass_over()
            children.remove(copy)
            threads.remove(copy)
    if main is not None:
        sink.open_main()
    for child in (*earlier.values(), *children):
        parent = None if main is None else MAIN
        sink.conversation(child.conversation, parent=parent, link=child.link)
        if child.link.method == "none":
            message = "no call that started this thread is known"
            sink.finding(Finding("orphan-subagent", child.file, message))
    for thread in threads:
        thread.write(sink, linked if thread is main else {})
    for thread in threads:
        _count_missing(thread, sink)
    if main is None or main.state is None or copies:
        return None
    state = {**main.state, "threads": [_link_state(child) for child in linkable]}
    return ReaderState(state["place"][1], state)


def _count_missing(thread: GeminiThread, sink: ParseSink) -> None:
    """State that the tokens are a lower bound if a subagent's file is missing."""
    for message in thread.fold.index.messages.values():
        for call in message.calls.values():
            child = call.spawn.agent_id if call.spawn is not None else None
            if child is not None and child not in sink.conversations:
                sink.use(thread.conversation, usage(0, 0, exact=False))
                return


_SINGLE_THREAD: Mapping[str, Callable[[Transcript, ParseSink], None]] = {
    STREAM: read_stream,
    REPORT: read_report,
    PROMPTS: read_prompt_log,
    CHECKPOINT: read_checkpoint,
    QWEN: read_qwen,
}


def _reader_of(family: str | None) -> Callable[[Transcript, ParseSink], None] | None:
    """Return the reader of a file with one thread and no rows that restate others; else None."""
    return _SINGLE_THREAD.get(family) if family is not None else None
