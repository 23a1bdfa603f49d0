"""Tailing a session of Gemini CLI."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from agentsdir.adapters.gemini.discover import (
    BEGINNING,
    DOCUMENT,
    LOG,
    family_of,
    group,
    id_of,
    peek,
    read_ends,
)
from agentsdir.adapters.gemini.documents import document_rows
from agentsdir.adapters.gemini.emit import MessageWriter, OutputFiles, call_key
from agentsdir.adapters.gemini.fold import RowCache, only_restates
from agentsdir.adapters.gemini.read import (
    GeminiThread,
    fullness,
    link_children,
    read_session,
    separate_copies,
)
from agentsdir.adapters.gemini.shapes import dict_of, text_of
from agentsdir.adapters.protocol import SessionFiles, Transcript
from agentsdir.formats.block_lines import BlockStore, encodable
from agentsdir.formats.blocks import MAIN, add_usage, metadata_update, no_usage, usage
from agentsdir.formats.diff import EmittedDiff
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.findings import Drifts, Finding
from agentsdir.formats.rows import LineFeed
from agentsdir.formats.sink import LiveSink, ParseSink
from agentsdir.formats.source import HEAD, Source
from agentsdir.formats.tail import Look, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentsdir.adapters.gemini.discover import FileEnds
    from agentsdir.adapters.gemini.fold import MessageIndex, Signature
    from agentsdir.adapters.gemini.shapes import ChatMessage
    from agentsdir.adapters.protocol import ReaderState
    from agentsdir.formats.block_lines import Key
    from agentsdir.formats.blocks import Block, StreamEvent, Usage
    from agentsdir.formats.sink import Conversation


# One transcript that is tailed.
#
# A log restates its messages again and again. So each message with new content is written out as it
# stands then, and only the difference from what was emitted before is yielded.


class _BlockCollector(LiveSink):
    """Collects the blocks of a few messages; their usage is summed at the end.

    Args:
        hidden: also collect hidden blocks.
        conversations: those of the whole session.
    """

    def __init__(self, *, hidden: bool, conversations: dict[str, Conversation]) -> None:
        super().__init__(hidden=hidden)
        self.conversations = conversations
        self._holds_usage = False
        self.held: tuple[Key, Usage] | None = None
        self._blocks: list[Block] = []

    def begin(self, *, holds_usage: bool) -> None:
        """Begin a message; with `holds_usage` its usage goes to `held`."""
        self._holds_usage = holds_usage
        self.held = None

    def add(self, block: Block) -> int:
        """Collect a block."""
        if self._holds_usage and "usage" in block:
            self.held = (block["conversationId"], block["id"]), block.pop("usage")
        self._blocks.append(block)
        return len(self._blocks) - 1

    def amend(self, handle: int, **late: Any) -> None:
        """State fields of a collected block."""
        self._blocks[handle] = {**encodable(self._blocks[handle]), **late}

    def blocks(self) -> list[Block]:
        """Return the blocks collected since the last call."""
        blocks, self._blocks = self._blocks, []
        return blocks

    def use(self, conversation: str, usage: Usage) -> None:
        """Do nothing: a message that is written again is not counted again."""

    def spent(self, conversation: str, usage: Usage) -> None:
        """State the whole usage of a conversation."""
        super().use(conversation, usage)


class _RecentRowCache(RowCache):
    """A row cache that also has the decoded rows of the current batch."""

    def __init__(
        self, rows: BinaryIO, file: str, index: MessageIndex, fresh: dict[int, Any]
    ) -> None:
        super().__init__(rows, file, index)
        self._fresh = fresh

    def row(self, number: int) -> Any:
        return self._fresh[number] if number in self._fresh else super().row(number)


class TailedThread(GeminiThread):
    """A transcript that is tailed.

    Args:
        file: the file's name in blocks and findings.
        child: whether it is a subagent's.
        is_document: whether it is one JSON object, which is read once; else a log.
        hidden: also emit blocks marked `hidden`.
        conversations: those of the whole session.
        emitted: what was emitted of this transcript so far.
    """

    def __init__(
        self,
        file: str,
        *,
        child: bool,
        is_document: bool,
        hidden: bool,
        conversations: dict[str, Conversation],
        emitted: EmittedDiff,
    ) -> None:
        super().__init__(file, child=child, is_document=is_document, hidden=hidden)
        # (message id, call id) → the child thread's id and how long it ran.
        self.children: dict[tuple[str, str], tuple[str, int | None]] = {}
        self.sink = _BlockCollector(hidden=hidden, conversations=conversations)
        self._touched = self.fold.index.touched
        # Only one of several copies emits their thread; another may take over from it.
        self.emitted = emitted
        self._feed = LineFeed(file, self.sink.tally, self.sink.finding)
        self._fresh: dict[int, Any] = {}
        # The usage of the last message, which may still grow: its last block is not known yet.
        self._held: tuple[str, Key, Usage] | None = None
        self._visible = False
        # Signatures of the messages so far. A message with a known signature waits until it is
        # clear whether it is a message of its own or a restatement.
        self._signatures: set[Signature] = set()
        self._waiting: set[str] = set()
        # How many dropped messages have been taken back.
        self._taken_back = 0

    @property
    def findings(self) -> list[Finding]:
        """What was wrong with the transcript so far."""
        return self.sink.findings

    @property
    def drifts(self) -> Drifts:
        """Unknown kinds in the transcript."""
        return self.fold.index.drifts

    @property
    def has_news(self) -> bool:
        """Whether any message differs from what was emitted."""
        return bool(self._touched)

    @property
    def is_half(self) -> bool:
        """Whether it is a document whose end is not written yet."""
        return any(finding.id == "half-document" for finding in self.findings)

    def take(self, line: bytes | int) -> None:
        """Read a line of a log; of a line that is too long, `line` is the length."""
        session = self.fold.session_id
        new_messages = self.fold.index.new_messages
        for row in self._feed.rows(line):
            count = len(new_messages)
            self.fold.take(row)
            self._fresh[len(self.fold.index) - 1] = row.value
            for message in new_messages[count:]:
                self._look_for_restatement(message, row.value)
        if session != self.fold.session_id:
            self._touched.update(dict.fromkeys(self.fold.index.messages, True))

    def go_on_from(self, state: dict[str, Any]) -> None:
        """Begin behind the rows of an earlier reading (`read.resume_session`), which say nothing.

        Raises any error for a state that does not fit.
        """
        self._feed.line, self._feed.offset = state["place"]
        self.fold.resume(state["fold"])
        index = self.fold.index
        self._signatures = index.dropped_signatures.copy()
        for message in index.messages.values():
            if message.role != "notice":
                self._signatures.update((message.role, signature) for signature in message.texts)

    def _look_for_restatement(self, message: ChatMessage, value: dict[str, Any]) -> None:
        """Let a new message wait if it may be a restatement; else release the waiting ones."""
        if not message.texts or message.role == "notice":
            return
        is_row = "id" in value  # else it is in a list
        if is_row and message.usage is None and only_restates(value, self._signatures):
            self._waiting.add(message.id)
        else:
            self._waiting.clear()
        self._signatures.update((message.role, signature) for signature in message.texts)

    def take_document(self, data: bytes) -> None:
        """Read a whole document."""
        sink = self.sink
        for row in document_rows(data, self.file, sink.tally, sink.finding):
            self.fold.take_record(row)

    def emit(
        self, rows: BinaryIO, *, settled: bool = True, final: bool = False
    ) -> Iterator[StreamEvent]:
        """Write out every message that differs from what was emitted; yield the differences.

        Args:
            rows: the transcript's bytes, seekable.
            settled: the file is not being written, so messages that a list left out are dropped. A
                client that resumes writes an empty list first, and the whole one a moment later.
            final: no row will follow.
        """
        index, sink, emitted = self.fold.index, self.sink, self.emitted
        index.settle_orphans()
        if final:
            for one in index.orphaned:
                if one.orphans:
                    index.touch(one.id)
        row_cache = _RecentRowCache(rows, self.file, index, self._fresh)
        outputs = OutputFiles(Path(self.file), self.fold.session_id, sink.finding)
        writer = MessageWriter(
            self.fold,
            row_cache,
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
            del due[last]  # its calls may still come
        if self._held is not None:
            message_id, key, used = self._held
            if message_id in due:
                self._held = None
            elif final or message_id != last:
                self._held = None
                yield from emitted.amend(key, usage=used)
        yield from self.emit_bounds()
        for message_id in due:
            del self._touched[message_id]
            sink.begin(holds_usage=message_id == last and not final)
            writer.message(index.messages[message_id])
            written = sink.blocks()
            for block in written:
                yield from emitted.restate(block)
            # This block says that a message has no content; a later row may have added some.
            empty = f"{message_id}:l"
            if all(block["id"] != empty for block in written):
                yield from emitted.amend((self.conversation, empty), superseded=True)
            if sink.held is not None:
                self._held = message_id, *sink.held
        sink.begin(holds_usage=False)
        for message in index.dropped[self._taken_back :]:
            writer.message(message)
            for block in sink.blocks():
                if (block["conversationId"], block["id"]) in emitted:
                    yield from emitted.restate(block)
        self._taken_back = len(index.dropped)
        self._visible = self._visible or writer.visible
        index.new_messages.clear()
        self._fresh.clear()
        yield from self.emit_bounds(end=True)

    def hold_back(self) -> None:
        """Emit nothing: this is a copy of another file, which emits the thread."""
        self.fold.index.new_messages.clear()
        self._fresh.clear()

    def emit_all_again(self) -> None:
        """Let the next `emit` write out every message that is in no other file."""
        self._touched.clear()
        self._touched.update((one.id, True) for one in self.own_messages)

    def emit_bounds(self, *, end: bool = False, final: bool = False) -> Iterator[StreamEvent]:
        """Yield changes of the first block of a subagent's thread, or of its last block."""
        if self.child and (not end or final or isinstance(self.fold.header.get("summary"), str)):
            yield from self.emitted.restate(self.bound("end" if end else "start"))

    def finish(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles, after the last `emit`."""
        yield from self.emit_bounds(end=True, final=True)
        if not self._visible and not self.is_copy:
            why = "the transcript holds no conversation"
            self.sink.finding(Finding("no-messages", self.file, why))
        for doubt in self.doubts():
            self.sink.finding(doubt)
        total = no_usage()
        for message in self.own_messages:
            if message.usage is not None:
                total = add_usage(total, message.usage)
        if self.counts_are_partial():
            total = add_usage(total, usage(0, 0, exact=False))
        self.sink.spent(self.conversation, total)
        yield from self.emitted.emit(self.sink.drain())
        yield from self.emitted.close()


class SnapshotReader:
    """A file with one thread and no fold, which is read again as a whole when it has changed.

    Args:
        path: the file.
        hidden: also emit blocks marked `hidden`.
        emitted: what was emitted of it so far.
    """

    def __init__(self, path: Path, *, hidden: bool, emitted: EmittedDiff) -> None:
        self._path = path
        self._emitted = emitted
        self._hidden = hidden
        self._sink = ParseSink(hidden=hidden)

    @property
    def findings(self) -> list[Finding]:
        """What was wrong with the file at the last read."""
        return self._sink.findings

    @property
    def drifts(self) -> Drifts:
        """Unknown kinds in the file at the last read."""
        return self._sink.drifts

    def read(self, data: bytes) -> Iterator[StreamEvent]:
        """Read the file as it is now; yield the differences."""
        emitted, sink = self._emitted, ParseSink(hidden=self._hidden)
        source = Source(str(self._path), path=self._path, data=data)
        read_session(SessionFiles((Transcript(source, "main"),)), sink)
        self._sink = sink
        emitted.start_again()
        for block in sink.blocks("all"):
            yield from emitted.restate(block)
        # If it is being written, missing blocks may still come.
        yield from emitted.finish_again(whole=data.rstrip().endswith((b"]", b"}")))

    def finish(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles."""
        for name, conversation in self._sink.conversations.items():
            usage = metadata_update({"usage": conversation.usage}, name)
            yield from self._emitted.emit([usage])
        yield from self._emitted.close()


# The files of subagents, which appear beside the main transcript.
#
# There may be hundreds of files, and they are polled ten times a second. So a folder is listed when
# it has changed, and a file is opened until it has said what it is.

_SUFFIXES = (".json", ".jsonl")
# A folder that is written twice within a tick of the system's clock looks changed once.
_LISTINGS = 3


class ChildFiles:
    """The files beside a main transcript, and whether they are subagents' files."""

    def __init__(self) -> None:
        # By folder: its time of change, and the number of looks that found that time.
        self._folders: dict[Path, tuple[int, int]] = {}
        # Files that are known, by inode; and those that do not say yet what they are.
        self._known: dict[Path, int] = {}
        self._open: set[Path] = set()

    def children(self, main: Path, session_id: str, *, complete: bool) -> Iterator[Path]:
        """Yield the files of a session's subagents that were not yielded before, in order.

        Args:
            complete: files that are still being written are decided too.
        """
        folders = [main.parent]
        if PurePath(session_id).name == session_id and session_id.isprintable():
            folders.append(main.parent / session_id)
        for folder in folders:
            self._open.update(path for path in self._listed(folder) if path != main)
        for path in sorted(self._open):
            try:
                inode = path.stat().st_ino
                found = _is_own(main, session_id, path, complete=complete)
            except (OSError, AgentsdirError):  # gone since it was listed
                self._open.discard(path)
                continue
            if found is not None:
                self._open.discard(path)
                self._known[path] = inode
            if found:
                yield path

    def forget(self, path: Path) -> None:
        """Read a file again that has changed."""
        self._known.pop(path, None)
        self._open.add(path)

    def _listed(self, folder: Path) -> Iterator[Path]:
        try:
            modified = folder.stat().st_mtime_ns
            before, times = self._folders.get(folder, (0, 0))
            times = times + 1 if before == modified else 1
            self._folders[folder] = modified, times
            if times > _LISTINGS:
                return
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = folder / entry.name
                    # A FIFO must not block.
                    if not (path.suffix in _SUFFIXES and entry.is_file()):
                        continue
                    if self._known.get(path) != entry.inode():
                        yield path
        except OSError:
            return


def is_child(main: Path, path: Path) -> bool:
    """Tell whether a file is one of a session's subagents'. Raises `AgentsdirError`."""
    sources = [Source(str(one), path=one) for one in (main, path)]
    return len(group(sources)[0].transcripts) > 1


def _is_own(main: Path, session_id: str, path: Path, *, complete: bool) -> bool | None:
    """Tell whether a file is a child of `main`; None while it does not say."""
    ends = read_ends(Source(str(path), path=path))
    head = peek(ends)
    if head.family == LOG and b"\n" not in ends.head and not complete:
        return None
    if head.may_be_child and session_id in (head.session_id, path.parent.name):
        # If it is no child, the main transcript may just be written.
        return is_child(main, path) or None
    return False if _says_all(head.family, ends) else None


def _says_all(family: str | None, ends: FileEnds) -> bool:
    """Tell whether a file has its kind: a log in its first line, a document in its last."""
    if family == DOCUMENT:
        end = ends.tail.rstrip()
        # Of its lines, which are indented, only the last one begins with a brace.
        return end.endswith(b"\n}" if b"\n" in end else b"}")
    return family is not None


# The follower of a session (docs/reading.md, "Following").
#
# Each file is a thread of its own: a log is read on from the last offset, a document is read again
# when it was rewritten. The links between calls and threads are computed again whenever one of them
# changes.

# How many lines or bytes are read before events are yielded, so that a long file is not collected.
_BATCH_LINES = 256
_BATCH_BYTES = 1024 * 1024


class _GeminiTail:
    """One transcript that is tailed, and what was emitted of it."""

    def __init__(self, path: Path, store: BlockStore, *, is_main: bool) -> None:
        self.tail = Tail(path)
        self.is_main = is_main
        self.emitted = EmittedDiff(store)
        self.thread: TailedThread | None = None
        self.snapshot: SnapshotReader | None = None
        self.head = b""
        self.family: str | None = None
        # Its own id, and the id of its conversation, which differs for a copy of another file.
        self.own_id = ""
        self.conversation = ""
        # Whether it emits its conversation: of several copies, only the fullest does.
        self.is_primary = False
        # A subagent's document at the last read.
        self.document: BytesIO | None = None

    @property
    def is_document(self) -> bool:
        """Whether the file is a session in one JSON object."""
        return self.family == DOCUMENT

    @property
    def is_begun_log(self) -> bool:
        """Whether lines of a log were read, so that what it is is known."""
        return self.thread is not None and not self.thread.is_document

    def look_at_head(self) -> bool:
        """Read the head for the file's family; return whether that is known."""
        if len(self.head) < HEAD:
            self.head = self.tail.head(HEAD)
            self.family = family_of(self.head)
        # What kind of a log it is stands in its first line.
        new_messages = self.family != LOG or b"\n" in self.head or len(self.head) == HEAD
        return self.family is not None and new_messages

    def is_child(self, data: bytes) -> bool:
        """Tell whether the file is a subagent's, which can also be followed by itself."""
        source = Source(str(self.tail.path), data=data)
        return not self.is_main or group([source])[0].transcripts[0].role == "subagent"


class GeminiFollower:
    """Follows a session (`StoreReader.follow`).

    Args:
        main: the main transcript, which need not exist yet.
        hidden: also emit blocks marked `hidden`.
        alone: follow this file only, without subagents' files beside it.
    """

    def __init__(self, main: Path, *, hidden: bool, alone: bool = False) -> None:
        self.blocks = BlockStore()
        self._main = _GeminiTail(main, self.blocks, is_main=True)
        self._files = [self._main]
        self._hidden = hidden
        self._alone = alone
        self._conversations: dict[str, Conversation] = {}
        # (message id, call id) → the thread that the call started and how long it ran.
        self._linked: dict[tuple[str, str], tuple[str, int | None]] = {}
        self._child_files = ChildFiles()
        # The session whose subagents' files are followed: another log may replace the main one.
        self._session_id = ""
        self._orphans: list[Finding] = []

    def go_on_from(self, reading: ReaderState) -> None:
        """Begin where an earlier reading of the main transcript ended: what it read says nothing.

        Raises any error for a reading that does not fit; the follower is of no use then.
        """
        file = self._main
        known = file.look_at_head() and file.family == LOG and file.tail.begin_at(reading.size)
        if not known:
            raise ValueError("the file is another one")
        thread = self._begin(file, file.head)
        thread.go_on_from(reading.state)
        if thread.child or thread.fold.session_id != id_of(file.head[:BEGINNING]):
            raise ValueError("the file is of another session")

    @property
    def findings(self) -> Sequence[Finding]:
        readings = [one for file in self._files for one in (file.thread, file.snapshot) if one]
        found = [finding for reading in readings for finding in reading.findings]
        drifts = Drifts()
        for reading in readings:
            drifts.add(reading.drifts)
        return list(dict.fromkeys([*found, *self._orphans, *drifts.findings()]))

    def poll(self) -> Iterator[StreamEvent]:
        return self._poll(final=False)

    def end(self) -> Iterator[StreamEvent]:
        yield from self._poll(final=True)
        yield from self._emit_copies()
        for file, thread in self._threads():
            if thread.child and not file.is_primary:
                continue
            if thread.child:
                thread.sink.conversation(thread.conversation, link=thread.link)
            if thread.child and thread.link.method == "none":
                why = "no call that started this thread is known"
                self._orphans.append(Finding("orphan-subagent", thread.file, why))
            yield from thread.finish()
        if self._main.snapshot is not None:
            yield from self._main.snapshot.finish()

    def unsettled(self) -> Iterator[Key]:
        """Yield the keys of blocks that only `end` yields, of what was read so far.

        These are the ends of threads, and results without a call.
        """
        for _, thread in self._threads():
            if thread.child:
                yield thread.conversation, f"{thread.conversation}:end"
            for message in thread.fold.index.orphaned:
                for bare in message.orphans or {}:
                    yield thread.conversation, f"{message.id}:r{call_key(bare)}"

    def _threads(self) -> list[tuple[_GeminiTail, TailedThread]]:
        return [(file, file.thread) for file in self._files if file.thread is not None]

    def _poll(self, *, final: bool) -> Iterator[StreamEvent]:
        whole = not self._goes_on_in_a_log()
        news = final
        # The main file first, so that its links are no older than the child's file.
        for file in self._all_files(complete=final):
            for event in self._read(file, final=final, whole=whole):
                news = True
                yield event
        for event in self._drop_others():
            news = True
            yield event
        if news:
            yield from self._link()

    def _all_files(self, *, complete: bool) -> Iterator[_GeminiTail]:
        yield from list(self._files)
        for file in self._new_children(complete=complete):
            self._files.append(file)
            yield file

    def _goes_on_in_a_log(self) -> bool:
        """Switch to the log in which a newer client continues a document, if there is one."""
        document, thread = self._main.tail.path, self._main.thread
        if document.suffix != ".json":
            return False
        tail = Tail(document.with_suffix(".jsonl"))
        head = tail.head(HEAD)
        if b"\n" not in head or (thread and _session_of(head) != thread.fold.session_id):
            return False
        self._main.tail, self._main.head = tail, b""
        return True

    def _read(self, file: _GeminiTail, *, final: bool, whole: bool) -> Iterator[StreamEvent]:
        look = file.tail.look()
        if look is Look.ABSENT and file is self._main and file.tail.find(self._folders_to_search()):
            look = file.tail.look()
        if look is Look.CHANGED:
            # A document is written anew each time, and does not say what it is until it is whole.
            was_document = file.is_document
            file.head = b""
            file.look_at_head()
            is_half = was_document and file.family in (DOCUMENT, None)
            if not (file.is_main or is_half or self._is_child(file)):
                yield from self._drop(file)
                return
        if look in (Look.GREW, Look.CHANGED):
            known = file.look_at_head()
            if file.is_document:
                yield from self._read_document(file, whole=whole)
            elif file.family not in (None, LOG):
                yield from self._read_anew(file)
            elif known or final or (look is Look.GREW and file.is_begun_log):
                yield from self._read_log(file, again=look is Look.CHANGED, whole=whole)
            elif look is Look.CHANGED and file.is_begun_log:
                yield from self._give_up(file, whole=whole)
        quiet = look is Look.SAME and file.thread is not None and file.thread.has_news
        if file.thread is not None and (final or quiet):
            if final and not file.is_document and (rest := file.tail.rest()):
                file.thread.take(rest)
            yield from self._emit(file, file.thread, final=final)

    def _give_up(self, file: _GeminiTail, *, whole: bool) -> Iterator[StreamEvent]:
        """Yield that what a log said does not stand; its new header is not whole yet."""
        file.tail.rewind()
        file.thread = None
        file.emitted.start_again()
        yield from file.emitted.finish_again(whole=whole)

    def _read_document(self, file: _GeminiTail, *, whole: bool) -> Iterator[StreamEvent]:
        data = file.tail.whole()
        thread = self._begin(file, data)
        thread.take_document(data)
        if thread.own_id() != file.own_id:
            self._name(file, thread)
        yield from self._emit(file, thread, BytesIO(data))
        # A client that rewrites a document begins with an empty file: blocks may still come.
        yield from file.emitted.finish_again(whole=whole and not thread.is_half)

    def _read_anew(self, file: _GeminiTail) -> Iterator[StreamEvent]:
        if file.snapshot is None:
            file.thread = None
            file.snapshot = SnapshotReader(
                file.tail.path, hidden=self._hidden, emitted=file.emitted
            )
        yield from file.snapshot.read(file.tail.whole())

    def _read_log(self, file: _GeminiTail, *, again: bool, whole: bool) -> Iterator[StreamEvent]:
        thread = file.thread
        again = again or thread is None or thread.is_document
        if again or thread is None:
            file.tail.rewind()
            thread = self._begin(file, file.head)
        yield from self._read_lines(file, thread, settled=again)
        if thread.child and file.own_id not in ("", thread.own_id()):
            # Its header came late, and earlier blocks have another conversation id.
            self._name(file, thread)
            file.tail.rewind()
            thread = self._begin(file, file.head)
            yield from self._read_lines(file, thread, settled=True)
        yield from file.emitted.finish_again(whole=whole)

    def _read_lines(
        self, file: _GeminiTail, thread: TailedThread, *, settled: bool
    ) -> Iterator[StreamEvent]:
        count = size = 0
        for line in file.tail.lines():
            thread.take(line)
            count, size = count + 1, size + (line if isinstance(line, int) else len(line))
            if count == _BATCH_LINES or size > _BATCH_BYTES:
                count = size = 0
                yield from self._emit(file, thread, settled=False)
        yield from self._emit(file, thread, settled=settled)

    def _begin(self, file: _GeminiTail, data: bytes) -> TailedThread:
        """Start to read a file from its beginning; what was emitted is kept to compare with."""
        if file.thread is not None or file.snapshot is not None:
            file.emitted.start_again()
        file.snapshot = None
        file.thread = TailedThread(
            str(file.tail.path),
            child=file.is_child(data),
            is_document=file.is_document,
            hidden=self._hidden,
            conversations=self._conversations,
            emitted=file.emitted,
        )
        if file is self._main:
            file.thread.children = self._linked
        return file.thread

    def _emit(
        self,
        file: _GeminiTail,
        thread: TailedThread,
        document: BytesIO | None = None,
        *,
        settled: bool = True,
        final: bool = False,
    ) -> Iterator[StreamEvent]:
        if not (thread.has_news or final or (thread.child and thread.fold.header)):
            return
        claimed = False
        if thread.child:
            if not file.own_id:
                self._name(file, thread)
            thread.conversation = file.conversation
            file.document = document = document or file.document
            claimed = self._claim_conversation(file, thread)
            if not file.is_primary:
                thread.hold_back()
                return
            parent = None if file is self._main else MAIN
            thread.sink.conversation(file.conversation, parent=parent)
            yield from file.emitted.emit(thread.sink.drain())
        if document is not None or thread.is_document:
            yield from thread.emit(document or BytesIO(), final=final)
        elif (stream := file.tail.reopen()) is not None:
            with stream:
                yield from thread.emit(stream, settled=settled, final=final)
        if claimed:
            yield from file.emitted.finish_again()

    def _name(self, file: _GeminiTail, thread: TailedThread) -> None:
        """Give a file the id of its conversation."""
        file.own_id = file.conversation = thread.own_id()
        file.is_primary = file.is_primary and self._primary(file) is None

    def _primary(self, file: _GeminiTail) -> _GeminiTail | None:
        """Return the other file that emits the same conversation; None for none."""
        others = (one for one in self._files if one.is_primary and one.own_id == file.own_id)
        return next((one for one in others if one is not file), None)

    def _claim_conversation(self, file: _GeminiTail, thread: TailedThread) -> bool:
        """Let a file emit its conversation unless a fuller copy does.

        Return whether another copy emitted it so far.
        """
        primary = None if file.is_primary else self._primary(file)
        if primary is None or primary.thread is None:
            file.is_primary = True
            return False
        if fullness(primary.thread) < fullness(thread):
            return False
        primary.is_primary, file.is_primary = False, True
        primary.emitted, file.emitted = file.emitted, primary.emitted
        primary.thread.emitted, thread.emitted = primary.emitted, file.emitted
        thread.link, thread.name = primary.thread.link, primary.thread.name
        thread.emit_all_again()
        file.emitted.start_again()
        return True

    def _emit_copies(self) -> Iterator[StreamEvent]:
        """Emit what copies of subagents' files have beyond the fullest of each."""
        children = [one for one in self._threads() if one[1].child]
        for file, thread in children:
            if not file.is_primary:
                yield from self._emit(file, thread, final=True)
        by_thread = {id(thread): file for file, thread in children}
        for copy, first in separate_copies(thread for _, thread in children):
            if copy.has_own_messages:
                file = by_thread[id(copy)]
                file.conversation, file.is_primary = copy.conversation, True
                copy.link, copy.name = first.link, first.name
                copy.emit_all_again()
                yield from self._emit(file, copy, final=True)

    def _link(self) -> Iterator[StreamEvent]:
        """Link the threads of subagents to their calls; yield the changes."""
        main = self._main.thread
        if main is None or main.child:
            return
        children = [
            (file, thread)
            for file, thread in self._threads()
            if file is not self._main
            and file.is_primary
            and file.conversation == thread.conversation
        ]
        linked = link_children(main, [thread for _, thread in children])
        for file, thread in children:
            if thread.link.method != "none":
                thread.sink.conversation(thread.conversation, link=thread.link)
                yield from file.emitted.emit(thread.sink.drain())
            yield from thread.emit_bounds()
            yield from thread.emit_bounds(end=True)
        before = dict(self._linked)
        # The main thread uses the same mapping when it writes such a call.
        self._linked.clear()
        self._linked.update(linked)
        for key in {**before, **linked}:
            if before.get(key) != linked.get(key):
                yield from self._relink(main, *key)

    def _relink(self, main: TailedThread, message_id: str, call_id: str) -> Iterator[StreamEvent]:
        """State the changed link of an emitted call to its thread."""
        place = MAIN, f"{message_id}:c{call_key(call_id)}"
        message = main.fold.index.messages.get(message_id)
        call = None if message is None else message.calls.get(call_id)
        if place not in self._main.emitted or call is None or call.spawn is None:
            return
        block = self._main.emitted[place]
        for name in ("durationMs", "link"):
            block.pop(name, None)
        block["subagentId"], took = self._linked.get(
            (message_id, call_id), (call.spawn.agent_id, None)
        )
        if took is not None:
            block["durationMs"] = took
        thread = self._conversations.get(block["subagentId"])
        if thread is not None and thread.link is not None:
            block["link"] = thread.link._asdict()
        yield from self._main.emitted.restate(block)

    def _folders_to_search(self) -> Iterator[Path]:
        """Yield the folders where a moved main transcript may be: its project's, then the others.

        People rename the folder of a project, and move sessions to another.
        """
        chats = self._main.tail.path.parent
        yield chats
        try:
            projects = sorted(chats.parent.parent.iterdir())
        except OSError:
            return
        for project in projects:
            yield project / chats.name

    def _new_children(self, *, complete: bool) -> Iterator[_GeminiTail]:
        """Yield the new files of subagents, and update the paths of files that moved."""
        if self._alone:
            return
        main = self._main.thread
        # A torn header may have the id too.
        session_id = id_of(self._main.head[:BEGINNING])
        if main is None or main.child or not session_id:
            return
        path = self._main.tail.path
        for child in self._child_files.children(path, session_id, complete=complete):
            if any(file.tail.path == child for file in self._files):
                continue
            moved = next((file for file in self._files if file.tail.is_at(child)), None)
            if moved is None:
                yield _GeminiTail(child, self.blocks, is_main=False)
            else:
                moved.tail.path = child

    def _is_child(self, file: _GeminiTail) -> bool:
        try:
            return is_child(self._main.tail.path, file.tail.path)
        except AgentsdirError:  # one of them is gone
            return True

    def _drop_others(self) -> Iterator[StreamEvent]:
        """Stop following the subagents of the session that the main transcript was of before."""
        session_id = id_of(self._main.head[:BEGINNING])
        if session_id == self._session_id or self._main.family is None:
            return
        others = self._files[1:] if self._session_id else ()
        self._session_id = session_id
        for file in others:
            if not self._is_child(file):
                yield from self._drop(file)

    def _drop(self, file: _GeminiTail) -> Iterator[StreamEvent]:
        """Stop following a file that is no longer a subagent's of this session."""
        file.emitted.start_again()
        yield from file.emitted.finish_again()
        self._conversations.pop(file.conversation, None)
        self._files.remove(file)
        self._child_files.forget(file.tail.path)


def _session_of(head: bytes) -> str:
    """Return the session id in the first line of a log; empty if it has none."""
    try:
        row = orjson.loads(head.partition(b"\n")[0])
    except orjson.JSONDecodeError:
        return ""
    return text_of(dict_of(row).get("sessionId"))
