"""A session of Gemini CLI, read while the client writes it (docs/reading.md, "Following").

Each file is a thread of its own: a log is read on from where it was read to, a document is read
again whenever it was rewritten. What ties them, a call and the thread that it started, is worked
out again whenever one of them says something new.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import orjson

from agentsdir.adapters.gemini.following.growing import GrowingThread, Snapshots
from agentsdir.adapters.gemini.following.nearby import Nearby, is_child
from agentsdir.adapters.gemini.transcripts.detection import DOCUMENT, LOG, family_of
from agentsdir.adapters.gemini.transcripts.discovery import group
from agentsdir.adapters.gemini.transcripts.emit import call_key
from agentsdir.adapters.gemini.transcripts.heads import BEGINNING, id_of
from agentsdir.adapters.gemini.transcripts.shapes import dict_of, text_of
from agentsdir.adapters.gemini.transcripts.threads import fullness, link_children, tell_copies_apart
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.drift import Drifts
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.retelling import Retelling
from agentsdir.formats.reading.source import HEAD, Source
from agentsdir.formats.reading.tailing import Look, Tail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agentsdir.formats.reading.sink import Conversation
    from agentsdir.formats.reading.stream import StreamEvent

# After so many lines, or bytes, what they gave is told, so that a long file is not gathered whole.
_BATCH_LINES = 256
_BATCH_BYTES = 1024 * 1024


class _File:
    """One transcript that is followed: where it was read to, and what was told of it."""

    def __init__(self, path: Path, *, is_main: bool) -> None:
        self.tail = Tail(path)
        self.is_main = is_main
        self.told = Retelling()
        self.thread: GrowingThread | None = None
        self.snapshots: Snapshots | None = None
        self.head = b""
        self.family: str | None = None
        # Its own id, and the conversation that it is: a copy of another file is told apart.
        self.own_id = ""
        self.conversation = ""
        # Whether it tells its conversation: of copies, only the fullest does.
        self.leads = False
        # A subagent's document as it was read last.
        self.document: BytesIO | None = None

    @property
    def is_document(self) -> bool:
        """Whether the file is a session in one JSON object."""
        return self.family == DOCUMENT

    def look_at_head(self) -> bool:
        """Learn of what family the file is; return whether that is known."""
        if len(self.head) < HEAD:
            self.head = self.tail.head(HEAD)
            self.family = family_of(self.head)
        # What kind of a log it is stands in its first line.
        begun = self.family != LOG or b"\n" in self.head or len(self.head) == HEAD
        return self.family is not None and begun

    def is_child(self, data: bytes) -> bool:
        """Tell whether the file is a subagent's, which can be followed by itself, too."""
        source = Source(str(self.tail.path), data=data)
        return not self.is_main or group([source])[0].transcripts[0].role == "subagent"


class SessionFollower:
    """Follows the session whose main transcript is, or will be, at `main`.

    Args:
        hidden: tell blocks marked `hidden` too.
        alone: follow the one file, and no subagents' beside it.
    """

    def __init__(self, main: Path, *, hidden: bool, alone: bool = False) -> None:
        self._main = _File(main, is_main=True)
        self._files = [self._main]
        self._hidden = hidden
        self._alone = alone
        self._conversations: dict[str, Conversation] = {}
        # (message id, call id) → the thread that the call started and how long it ran.
        self._linked: dict[tuple[str, str], tuple[str, int | None]] = {}
        self._nearby = Nearby()
        self._orphans: list[Finding] = []

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the files so far."""
        readings = [one for file in self._files for one in (file.thread, file.snapshots) if one]
        found = [finding for reading in readings for finding in reading.findings]
        drifts = Drifts()
        for reading in readings:
            drifts.add(reading.drifts)
        return list(dict.fromkeys([*found, *self._orphans, *drifts.findings()]))

    def poll(self) -> Iterator[StreamEvent]:
        """Yield what was written since the last look."""
        return self._poll(final=False)

    def end(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles."""
        yield from self._poll(final=True)
        yield from self._tell_copies()
        for file, thread in self._threads():
            if thread.child and not file.leads:
                continue
            if thread.child:
                thread.sink.conversation(thread.conversation, link=thread.link)
            if thread.child and thread.link.method == "none":
                why = "no call that started this thread is known"
                self._orphans.append(Finding("orphan-subagent", thread.file, None, None, None, why))
            yield from thread.finish()
        if self._main.snapshots is not None:
            yield from self._main.snapshots.finish()

    def _threads(self) -> list[tuple[_File, GrowingThread]]:
        return [(file, file.thread) for file in self._files if file.thread is not None]

    def _poll(self, *, final: bool) -> Iterator[StreamEvent]:
        whole = not self._goes_on_in_a_log()
        news = final
        # The main file first: what it says of a child is then no older than the child's file.
        for file in self._all_files(complete=final):
            for event in self._read(file, final=final, whole=whole):
                news = True
                yield event
        if news:
            yield from self._link()

    def _all_files(self, *, complete: bool) -> Iterator[_File]:
        yield from list(self._files)
        for file in self._new_children(complete=complete):
            self._files.append(file)
            yield file

    def _goes_on_in_a_log(self) -> bool:
        """Go over to the log in which a newer client goes on with a document, if there is one."""
        document, thread = self._main.tail.path, self._main.thread
        if document.suffix != ".json":
            return False
        tail = Tail(document.with_suffix(".jsonl"))
        head = tail.head(HEAD)
        if b"\n" not in head or (thread and _session_of(head) != thread.fold.session_id):
            return False
        self._main.tail, self._main.head = tail, b""
        return True

    def _read(self, file: _File, *, final: bool, whole: bool) -> Iterator[StreamEvent]:
        look = file.tail.look()
        if look is Look.ABSENT and file is self._main and file.tail.find(self._near()):
            look = file.tail.look()
        if look is Look.CHANGED:
            file.head = b""
            if not (file.is_main or file.is_document or self._is_child(file)):
                yield from self._drop(file)
                return
        if look in (Look.GREW, Look.CHANGED):
            known = file.look_at_head()
            if file.is_document:
                yield from self._read_document(file, whole=whole)
            elif file.family not in (None, LOG):
                yield from self._read_anew(file)
            elif known or final or (file.thread is not None and not file.thread.is_document):
                yield from self._read_log(file, again=look is Look.CHANGED, whole=whole)
        quiet = look is Look.SAME and file.thread is not None and file.thread.has_news
        if file.thread is not None and (final or quiet):
            if final and not file.is_document and (rest := file.tail.rest()):
                file.thread.take(rest)
            yield from self._tell(file, file.thread, final=final)

    def _read_document(self, file: _File, *, whole: bool) -> Iterator[StreamEvent]:
        data = file.tail.whole()
        thread = self._begin(file, data)
        thread.take_document(data)
        if thread.own_id() != file.own_id:
            self._name(file, thread)
        yield from self._tell(file, thread, BytesIO(data))
        # Whoever writes a document anew begins with an empty file: what is not there yet may come.
        yield from file.told.settle(whole=whole and not thread.is_half)

    def _read_anew(self, file: _File) -> Iterator[StreamEvent]:
        if file.snapshots is None:
            file.thread = None
            file.snapshots = Snapshots(file.tail.path, hidden=self._hidden, told=file.told)
        yield from file.snapshots.read(file.tail.whole())

    def _read_log(self, file: _File, *, again: bool, whole: bool) -> Iterator[StreamEvent]:
        thread = file.thread
        again = again or thread is None or thread.is_document
        if again or thread is None:
            file.tail.rewind()
            thread = self._begin(file, file.head)
        yield from self._read_lines(file, thread, settled=again)
        if thread.child and file.own_id not in ("", thread.own_id()):
            # Its header came late, and what was told bears another name.
            self._name(file, thread)
            file.tail.rewind()
            thread = self._begin(file, file.head)
            yield from self._read_lines(file, thread, settled=True)
        yield from file.told.settle(whole=whole)

    def _read_lines(
        self, file: _File, thread: GrowingThread, *, settled: bool
    ) -> Iterator[StreamEvent]:
        count = size = 0
        for line in file.tail.lines():
            thread.take(line)
            count, size = count + 1, size + (line if isinstance(line, int) else len(line))
            if count == _BATCH_LINES or size > _BATCH_BYTES:
                count = size = 0
                yield from self._tell(file, thread, settled=False)
        yield from self._tell(file, thread, settled=settled)

    def _begin(self, file: _File, data: bytes) -> GrowingThread:
        """Start to read a file from its beginning; what was told of it is kept to compare with."""
        if file.thread is not None or file.snapshots is not None:
            file.told.again()
        file.snapshots = None
        file.thread = GrowingThread(
            str(file.tail.path),
            child=file.is_child(data),
            is_document=file.is_document,
            hidden=self._hidden,
            conversations=self._conversations,
            told=file.told,
        )
        if file is self._main:
            file.thread.children = self._linked
        return file.thread

    def _tell(
        self,
        file: _File,
        thread: GrowingThread,
        document: BytesIO | None = None,
        *,
        settled: bool = True,
        final: bool = False,
    ) -> Iterator[StreamEvent]:
        if not (thread.has_news or final or (thread.child and thread.fold.header)):
            return
        took_over = False
        if thread.child:
            if not file.own_id:
                self._name(file, thread)
            thread.conversation = file.conversation
            file.document = document = document or file.document
            took_over = self._take_the_lead(file, thread)
            if not file.leads:
                thread.hold_back()
                return
            parent = None if file is self._main else MAIN
            thread.sink.conversation(file.conversation, parent=parent)
            yield from file.told.tell(thread.sink.drain())
        if document is not None or thread.is_document:
            yield from thread.tell(document or BytesIO(), final=final)
        elif (stream := file.tail.reopen()) is not None:
            with stream:
                yield from thread.tell(stream, settled=settled, final=final)
        if took_over:
            yield from file.told.settle()

    def _name(self, file: _File, thread: GrowingThread) -> None:
        """Give a file the id of its conversation."""
        file.own_id = file.conversation = thread.own_id()
        file.leads = file.leads and self._leader(file) is None

    def _leader(self, file: _File) -> _File | None:
        """Return the other file that tells the conversation that this one is, too."""
        others = (one for one in self._files if one.leads and one.own_id == file.own_id)
        return next((one for one in others if one is not file), None)

    def _take_the_lead(self, file: _File, thread: GrowingThread) -> bool:
        """Let a file tell its conversation unless a fuller copy does.

        Return whether another copy told it so far.
        """
        leader = None if file.leads else self._leader(file)
        if leader is None or leader.thread is None:
            file.leads = True
            return False
        if fullness(leader.thread) < fullness(thread):
            return False
        leader.leads, file.leads = False, True
        leader.told, file.told = file.told, leader.told
        leader.thread.told, thread.told = leader.told, file.told
        thread.link, thread.name = leader.thread.link, leader.thread.name
        thread.tell_anew()
        file.told.again()
        return True

    def _tell_copies(self) -> Iterator[StreamEvent]:
        """Tell what copies of subagents' files have beyond the fullest of each."""
        children = [one for one in self._threads() if one[1].child]
        for file, thread in children:
            if not file.leads:
                yield from self._tell(file, thread, final=True)
        by_thread = {id(thread): file for file, thread in children}
        for copy, first in tell_copies_apart(thread for _, thread in children):
            if copy.is_told:
                file = by_thread[id(copy)]
                file.conversation, file.leads = copy.conversation, True
                copy.link, copy.name = first.link, first.name
                copy.tell_anew()
                yield from self._tell(file, copy, final=True)

    def _link(self) -> Iterator[StreamEvent]:
        """Tie the threads of subagents to their calls; yield what that makes new."""
        main = self._main.thread
        if main is None or main.child:
            return
        children = [
            (file, thread)
            for file, thread in self._threads()
            if file is not self._main and file.leads and file.conversation == thread.conversation
        ]
        linked = link_children(main, [thread for _, thread in children])
        for file, thread in children:
            if thread.link.method != "none":
                thread.sink.conversation(thread.conversation, link=thread.link)
                yield from file.told.tell(thread.sink.drain())
            yield from thread.tell_bounds()
            yield from thread.tell_bounds(end=True)
        before = dict(self._linked)
        # The main thread goes by this, too, whenever it writes such a call out.
        self._linked.clear()
        self._linked.update(linked)
        for key in {**before, **linked}:
            if before.get(key) != linked.get(key):
                yield from self._relink(main, *key)

    def _relink(self, main: GrowingThread, message_id: str, call_id: str) -> Iterator[StreamEvent]:
        """State anew what a call that was told says of the thread that it started."""
        place = MAIN, f"{message_id}:c{call_key(call_id)}"
        message = main.fold.index.messages.get(message_id)
        call = None if message is None else message.calls.get(call_id)
        if place not in self._main.told or call is None or call.spawn is None:
            return
        block = self._main.told[place]
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
        yield from self._main.told.restate(block)

    def _near(self) -> Iterator[Path]:
        """Yield the folders in which a main transcript may be found again: its project's, others'.

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

    def _new_children(self, *, complete: bool) -> Iterator[_File]:
        """Yield the files of subagents that were not there before; find those that moved along."""
        if self._alone:
            return
        main = self._main.thread
        # What a torn header says holds, too.
        session_id = id_of(self._main.head[:BEGINNING])
        if main is None or main.child or not session_id:
            return
        path = self._main.tail.path
        for child in self._nearby.children(path, session_id, complete=complete):
            if any(file.tail.path == child for file in self._files):
                continue
            moved = next((file for file in self._files if file.tail.is_at(child)), None)
            if moved is None:
                yield _File(child, is_main=False)
            else:
                moved.tail.path = child

    def _is_child(self, file: _File) -> bool:
        try:
            return is_child(self._main.tail.path, file.tail.path)
        except AgentsdirError:  # one of them is gone, which says nothing
            return True

    def _drop(self, file: _File) -> Iterator[StreamEvent]:
        """Follow a file no more that is not a subagent's of this session any longer."""
        file.told.again()
        yield from file.told.settle()
        self._files.remove(file)
        self._nearby.forget(file.tail.path)


def _session_of(head: bytes) -> str:
    """Return the session id in the first line of a log; empty if it has none."""
    try:
        row = orjson.loads(head.partition(b"\n")[0])
    except orjson.JSONDecodeError:
        return ""
    return text_of(dict_of(row).get("sessionId"))
