"""One transcript file as it stands: rows in, blocks out, most rows decoded once.

A message is complete when the next one begins, most of the time. Then its blocks are written, from
rows that are still at hand. What changes a message after that (a resume that restates it richer),
and what only the end tells (a subagent's thread, a file with the whole of an output) makes it
stale: it is written again at the end, from rows that are read again, and put in its place.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from agentsdir.adapters.gemini.transcripts.detection import DOCUMENT, family_of
from agentsdir.adapters.gemini.transcripts.documents import document_rows
from agentsdir.adapters.gemini.transcripts.echoes import Echoes
from agentsdir.adapters.gemini.transcripts.emit import Emitter, in_order
from agentsdir.adapters.gemini.transcripts.outputs import Outputs
from agentsdir.adapters.gemini.transcripts.shelf import Later, Shelf
from agentsdir.adapters.gemini.transcripts.threads import Thread
from agentsdir.adapters.gemini.transcripts.tokens import total_usage
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.rows import read_rows
from agentsdir.formats.reading.source import Source
from agentsdir.formats.reading.usage import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentsdir.adapters.contract import Transcript
    from agentsdir.adapters.gemini.transcripts.messages import Message
    from agentsdir.formats.reading import blocks
    from agentsdir.formats.reading.sink import ParseSink

# How many bytes of rows may be kept decoded for a message that grows and grows.
HELD = 16 * 1024 * 1024
# How many messages are written at once.
TOGETHER = 4
# In the place of a mark of blocks that were written again.
_VOID = -(2**62)


class _OutputsLater(Outputs):
    """Before the end, no file beside the transcript is looked for."""

    def whole(self, output: str, source: blocks.BlockSource) -> None:
        """Raise `Later` for an output that may stand in a file of its own."""
        raise Later


class ReadThread(Thread):
    """A transcript that is read as it stands.

    Args:
        transcript: the file.
        sink: takes the blocks, when they are known, and `write` arranges them.
    """

    def __init__(self, transcript: Transcript, sink: ParseSink) -> None:
        source = transcript.source
        self._path = source.path
        self._source = source
        self._sink = sink
        with source.open() as stream:
            is_document = family_of(stream.read(65536)) == DOCUMENT
            child = transcript.role == "subagent"
            hidden = sink.wants_hidden
            super().__init__(source.name, child=child, is_document=is_document, hidden=hidden)
            self._shelf = Shelf(None, self.file, self.fold.index)
            outputs = _OutputsLater(None, "", sink.finding)
            self._emitter = Emitter(self.fold, self._shelf, sink, "", None, outputs)
            # By message number: the handle and the mark that its blocks begin with.
            self._handles, self._marks = array("q"), array("q")
            self._stale: set[str] = set()
            # The session and conversation that the blocks say.
            self._said = "", ""
            stream.seek(0)
            if is_document:
                data = source.document()
                # Clients replace a document as a whole, so these very bytes are read again.
                self._source = Source(self.file, data=data)
                rows = document_rows(data, self.file, sink.tally, sink.finding)
                take = self.fold.take_record
            else:
                loads = Echoes(skips=not hidden).decode
                rows = read_rows(
                    stream, self.file, sink.tally, sink.finding, loads=loads, unread="metadata"
                )
                take = self.fold.take
            begun, shelf, held = self.fold.index.begun, self._shelf, 0
            for row in rows:
                take(row)
                shelf.hold(row.value)
                held += row.length
                if len(begun) > TOGETHER or held > HELD:
                    self._settle(len(begun) - 1)
                    shelf.release()
                    held = row.length
        self.fold.index.settle_orphans()
        self._settle(len(self.fold.index.begun))
        self._handles.append(len(sink))
        self._marks.append(len(self._emitter.marks))
        self.conversation = self.own_id()

    def _settle(self, count: int) -> None:
        """Write the first messages of those that began; note which written ones say more now."""
        index, emitter, stale = self.fold.index, self._emitter, self._stale
        handles, marks, sink = self._handles, self._marks, self._sink
        written = len(handles)
        for message_id, says_more in index.touched.items():
            if says_more and index.messages[message_id].number < written:
                stale.add(message_id)
        index.touched.clear()
        if count <= 0:
            return
        if not written:
            emitter.conversation = self.own_id()
            self._said = self.fold.session_id, emitter.conversation
        for message in index.begun[:count]:
            handles.append(len(sink))
            marks.append(len(emitter.marks))
            if message.texts or message.role != "user" or message.orphans or message.extras:
                try:
                    emitter.write(message)
                except Later:
                    stale.add(message.id)
        del index.begun[:count]

    def write(
        self, sink: ParseSink, children: Mapping[tuple[str, str], tuple[str, int | None]]
    ) -> None:
        """Put all blocks in order, settle all rows, and count all tokens."""
        index, emitter = self.fold.index, self._emitter
        emitter.conversation, emitter.children = self.conversation, children
        emitter.outputs = Outputs(self._path, self.fold.session_id, sink.finding)
        if self._said != (self.fold.session_id, self.conversation):
            self._stale = set(index.messages)
        self._stale.update(index.touched)
        for message in index.dropped:
            self._void(message.number)
        with self._source.open() as stream:
            self._shelf.read_from(stream)
            runs: list[range] = []
            if self.child:
                runs.append(_run(sink.add(self.bound("start"))))
            begin = end = 0
            for message in in_order(self.fold):
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
        if sink.counted is not None:
            for message in self.own_messages:
                if message.usage is not None:
                    emitter.note_copy(message, message.usage)
        if self.counts_are_partial():
            sink.use(self.conversation, usage(0, 0, exact=False))

    def pass_over(self) -> None:
        """Count the rows of a copy, of which nothing is shown."""
        self._emitter.marks = array("q")
        self._settle_rows()

    def _run_of(self, message: Message) -> tuple[int, int]:
        """Return where a message's blocks begin and end, written again if they are stale."""
        sink, number = self._sink, message.number
        begin, end = self._handles[number], self._handles[number + 1]
        if message.id in self._stale:
            begin = len(sink)
            self._void(number)
            self._emitter.write(message)
            end = len(sink)
        if not self.fold.is_live(message):
            for handle in range(begin, end):
                sink.supersede(handle, self.fold.left_by(message))
        return begin, end

    def _void(self, number: int) -> None:
        """Take back what a message's blocks say of their rows."""
        marks = self._emitter.marks
        for at in range(self._marks[number], self._marks[number + 1]):
            marks[at] = _VOID

    def _settle_rows(self) -> None:
        """Count each row by what it gave."""
        index, tally = self.fold.index, self._sink.tally
        marks = set(self._emitter.marks)
        marks.discard(_VOID)
        visible = {mark for mark in marks if mark >= 0}
        parsed = visible - index.salvaged
        hidden = {~mark for mark in marks if mark < 0} - parsed - index.salvaged
        tally.parsed += len(parsed)
        for row in hidden:
            tally.hide(self._emitter.reasons[row])
        folded = len(index.line) - len(index.salvaged) - len(parsed) - len(hidden)
        for reason, rows in self.fold.amending.items():
            tally.fold(reason, rows)
        why = "copy" if self.is_copy else "repeated"
        tally.fold(why, folded - self.fold.amending.total())
        self._sink.drifts.add(index.drifts)
        if not visible and not self.is_copy:
            why = "the transcript holds no conversation"
            self._sink.finding(Finding("no-messages", self.file, None, None, None, why))


def _run(handle: int) -> range:
    return range(handle, handle + 1)
