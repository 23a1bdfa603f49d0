"""Standard output of one run, as stream events (docs/clients/gemini.md, "Stream and file").

The lines are read as a recording of them is, by the same reading. They leave out what the chat
file has: `joined` puts both together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.running.outcomes import read_outcome
from agentsdir.adapters.gemini.transcripts.shapes import text_of
from agentsdir.adapters.gemini.transcripts.stdout import StreamReader
from agentsdir.formats import jsontext
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.deltas import Deltas
from agentsdir.formats.reading.live import StdoutSink
from agentsdir.formats.reading.rows import LineFeed
from agentsdir.formats.reading.sink import encodable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentsdir.adapters.gemini.running.outcomes import Outcome
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent
    from agentsdir.formats.reading.usage import Usage

_FILE = "stdout"


class _Sink(StdoutSink):
    """Events of a run, whose count is told in another way."""

    def use(self, conversation: str, usage: Usage) -> None:
        """Take note of the run's count, which is told with its result."""
        self.conversation(conversation).usage = usage


class StdoutTranslator:
    """Translates ``gemini -p --output-format stream-json``.

    `outcome` is what the last `result` said, None as long as there is none: a client that was
    ended by a signal says none.

    Args:
        hidden: tell the lines that are no part of the conversation, too, as hidden blocks.
    """

    def __init__(self, *, hidden: bool = False) -> None:
        self.outcome: Outcome | None = None
        self._sink = _Sink(hidden=hidden, begun_as=self._close)
        self._sink.open_main()
        self._reader = StreamReader(_FILE, self._sink, self._hear)
        self._feed = LineFeed(_FILE, self._sink.tally, self._sink.finding)
        self._answer = ""
        self._deltas = Deltas()
        self._error = ""

    @property
    def session_id(self) -> str:
        """The session that `init` names; empty before."""
        return self._reader.session

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the lines so far."""
        return [*self._sink.findings, *self._sink.drifts.findings()]

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        """Take one line, with or without its LF. Never raises for what the bytes hold."""
        for row in self._feed.rows(line):
            value = row.value
            kind = value.get("type")
            self._reader.take(row)
            if kind == "init":
                self._update(model=text_of(value.get("model")))
            elif kind == "error" and value.get("severity") == "error":
                self._error = text_of(value.get("message"))
            elif kind == "result":
                self._result(value)
        return iter(self._sink.drain())

    def end(self) -> Iterator[StreamEvent]:
        """Yield what is left: the answer that was being given is completed as far as it came."""
        self._reader.finish()
        return iter(self._sink.drain())

    def _hear(self, block: Block, piece: str) -> None:
        """Tell a piece of an answer: its block begins with the first."""
        block = encodable({**block, "source": None})
        handle = block["id"]
        if handle != self._answer:
            self._answer, self._deltas = handle, Deltas()
            self._sink.tell(stream.block_start(handle, block))
        if more := self._deltas.more(piece):
            self._sink.tell(stream.text_delta(handle, more, MAIN))

    def _close(self, block: Block) -> None:
        """Tell what its end settles of an answer, before the block is told to be complete."""
        if block["id"] == self._answer and (rest := self._deltas.rest()):
            self._sink.tell(stream.text_delta(self._answer, rest, MAIN))

    def _result(self, value: dict[str, Any]) -> None:
        self.outcome = outcome = read_outcome(value, self._error)
        self._update(usage=outcome.usage, stopReason="" if outcome.failed else "end_turn")

    def _update(self, **metadata: Any) -> None:
        said = {name: value for name, value in metadata.items() if value not in (None, "")}
        if said:
            self._sink.tell(stream.metadata_update(jsontext.clean(said, set()), MAIN))
