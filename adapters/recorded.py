"""Transcripts that are recorded stream events, one a line, as `echo` and `script` write them.

`agentsdir replay --events` and `send --events` print the same lines, so their output can be read,
and played by `script`, like any other transcript.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.protocol import (
    ModelRequest,
    NativeFile,
    Paths,
    ProviderSettings,
    SessionFiles,
    Transcript,
)
from agentsdir.formats import blocks, jsontext
from agentsdir.formats.blocks import MAIN, Reducer, as_usage, check_block, make_block
from agentsdir.formats.errors import Invalid
from agentsdir.formats.findings import Drifts
from agentsdir.formats.ids import short_hash
from agentsdir.formats.rows import LineFeed, Tally, read_rows
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from agentsdir.adapters.protocol import Content, SessionSpec
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.rows import Row
    from agentsdir.formats.sink import ParseSink


def saved_transcript(spec: SessionSpec) -> Source | None:
    """Return the session's own transcript from earlier turns; None without one."""
    return spec.transcripts.get(_file_name(spec.native_id))


class RecordedProvider:
    """The part that providers share whose transcripts are recorded stream events."""

    runs_program = False
    settings = ProviderSettings(model=False, system_prompt=False, modes={})
    runner_methods = frozenset({"prepare_model_input", "execute_tool_call"})

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Yield a session's transcript under the id of a new session."""
        del report
        saved = transcripts.get(_file_name(old_id))
        if saved is not None:
            yield NativeFile(_file_name(new_id), "main", saved)


def _file_name(native_id: str) -> str:
    return f"{native_id}.jsonl"


# How the first line begins when it is so long that the head holds only a part of it.
_LONG_EVENT = rb'\s*\{"type":\s*"block_(?:start|complete)",\s*"blockId":\s*"[^"]*",\s*"block":\s*\{'


class RecordedTranscript:
    """The transcript of one session, of which this turn's part is held in memory.

    Args:
        spec: its `native_id` names the file and, with `turn`, begins every block id.
        saved: the transcript of earlier turns, which is not read; None without one.
    """

    def __init__(self, spec: SessionSpec, saved: Source | None = None) -> None:
        self.native_id = spec.native_id
        self.prefix = f"{spec.native_id}:{spec.turn}:"
        self._saved = saved
        self._size = saved.size if saved else 0
        self._data = bytearray()
        if saved and self._size:
            with saved.open() as stream:
                stream.seek(self._size - 1)
                self._data += b"" if stream.read(1) == b"\n" else b"\n"

    @property
    def prompts(self) -> int:
        """How many turns it holds. All of it is read.

        A turn that died before it was saved is missing, so block ids use `SessionSpec.turn`.
        """
        with self._source().open() as stream:
            return sum(_is_prompt(line) for line in stream)

    @property
    def path(self) -> str:
        """The file's path, relative to the architecture's storage."""
        return _file_name(self.native_id)

    def prompt(self, content: Content, timestamp: str) -> StreamEvent:
        """Begin the next turn; return the event of its `user_message` block."""
        block = self.block("user_message", "prompt", timestamp, content=content)
        return self.record(blocks.block_complete(block["id"], block))

    def block(self, kind: str, part: str, timestamp: str, **fields: Any) -> Block:
        """Make a block of the current turn; its id says session, turn and part."""
        return make_block(kind, self.prefix + part, MAIN, self.native_id, timestamp, None, **fields)

    def record(self, event: StreamEvent) -> StreamEvent:
        """Append one event and return it."""
        self._data += jsontext.encode(event) + b"\n"
        return event

    def files(self) -> list[NativeFile]:
        """Return the transcript as a native file."""
        return [NativeFile(self.path, "main", self._source())]

    def _source(self) -> Source:
        if self._saved is None or self._saved.path is None:
            earlier = self._saved.read() if self._saved else b""
            return Source(self.path, data=earlier + self._data)
        return Source.following(self.path, self._saved.path, self._size, bytes(self._data))


class RecordedSession(ABC):
    """The part that sessions share whose transcripts are recorded stream events."""

    def __init__(self, spec: SessionSpec, saved: Source | None) -> None:
        self._spec = spec
        self._transcript = RecordedTranscript(spec, saved)

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Stream a turn without tools."""
        spec = self._spec
        yield self.prompt(content)
        yield from self.call_model(
            ModelRequest(
                content,
                (),
                1,
                spec.system_prompt,
                spec.model,
                tools=(),
                timeline=lambda: (),
                carries_out=lambda _name: False,
                is_cancelled=lambda: False,
            )
        )

    def prompt(self, content: Content) -> StreamEvent:
        return self._transcript.prompt(content, self._spec.now())

    @abstractmethod
    def call_model(self, request: ModelRequest) -> Iterator[StreamEvent]: ...

    def take_result(
        self, call: Block, output: Any, duration_ms: int, *, is_error: bool
    ) -> Iterator[StreamEvent]:
        yield from self.result_events(call, output, is_error=is_error, durationMs=duration_ms)

    def result_events(
        self, call: Block, output: Any, *, is_error: bool, **fields: Any
    ) -> Iterator[StreamEvent]:
        """Yield the block of a call's result, and the call's own with its status."""
        now, transcript = self._spec.now(), self._transcript
        called = call["toolUseId"]
        fields = {"toolUseId": called, "output": output, "isError": is_error, **fields}
        result = transcript.block("tool_result", f"result:{called}", now, **fields)
        yield transcript.record(blocks.block_complete(result["id"], result))
        status = "error" if is_error else "success"
        if call["status"] != status:
            ended = {**call, "status": status}
            yield transcript.record(blocks.block_complete(call["id"], ended))

    def interrupt(self) -> Iterator[StreamEvent]:
        return iter(())

    def suspend(self) -> bytes:
        """Return the number of turns; `restore` does not need it."""
        return b'{"turns":%d}' % self._transcript.prompts

    def stop(self) -> None:
        return  # nothing runs between turns

    def transcripts(self) -> list[NativeFile]:
        return self._transcript.files()

    def as_own(self, event: StreamEvent) -> StreamEvent:
        """Return an event that others made as one of this session and turn: its ids, its clock."""
        prefix = self._transcript.prefix
        own: dict[str, Any] = {**event, "conversationId": event.get("conversationId", MAIN)}
        own.pop("timestamp", None)
        if "blockId" in own:
            own["blockId"] = prefix + own["blockId"]
        if "block" in own:
            own["block"] = {
                **own["block"],
                "id": prefix + own["block"]["id"],
                "conversationId": own["conversationId"],
                "sessionId": self._transcript.native_id,
                "timestamp": self._spec.now(),
                "source": None,
            }
        return own


_NEEDS: dict[str, dict[str, type]] = {
    "block_start": {"blockId": str, "block": dict},
    "block_complete": {"blockId": str, "block": dict},
    "text_delta": {"blockId": str, "delta": str},
    "block_update": {"blockId": str, "updates": dict},
    "metadata_update": {"metadata": dict},
}


# What `RecordedSession.as_own` fills in itself.
_FILLED_IN = {"conversationId": MAIN, "sessionId": "", "timestamp": None, "source": None}


def event_flaw(event: dict[str, Any]) -> str | None:
    """Return why an object is none that `RecordedSession.as_own` takes; None if it is one.

    Args:
        event: its `type` is that of a stream event.
    """
    needs = _NEEDS[event["type"]]
    for name, kind in needs.items():
        if not isinstance(event.get(name), kind):
            return f"a {event['type']} needs {name}"
    if "block" in needs:
        try:
            check_block({**event["block"], **_FILLED_IN})
        except Invalid as error:
            return error.message
    return None


def _is_prompt(line: bytes) -> bool:
    if b'"user_message"' not in line:
        return False
    try:
        event = jsontext.decode(line)
    except jsontext.JSONDecodeError:
        return False
    return isinstance(event, dict) and is_prompt(event)


def is_prompt(event: StreamEvent) -> bool:
    """Tell whether an event is a prompt on the main thread, where a turn begins."""
    block = event.get("block")
    return (
        event.get("type") == "block_complete"
        and isinstance(block, dict)
        and block.get("type") == "user_message"
        and event.get("conversationId", MAIN) == MAIN
    )


class RecordedReader:
    """Reads recorded stream events (the `TranscriptReader` of `script` and `echo`)."""

    def detect(self, head: bytes, name: str) -> bool:
        """Look for a stream event in the first lines."""
        del name
        for line in head.split(b"\n", 20)[:20]:
            try:
                event = jsontext.decode(line)
            except jsontext.JSONDecodeError:
                continue
            if isinstance(event, dict) and event.get("type") in blocks.EVENT_TYPES:
                about = "metadata" if event["type"] == "metadata_update" else "blockId"
                return isinstance(event.get("conversationId"), str) and about in event
        return b"\n" not in head and re.match(_LONG_EVENT, head) is not None

    def paths(self, home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
        """Return the working directory: there is no client with a store of its own."""
        del home, env
        return Paths(cwd, cwd)

    def discover(self, sources: Sequence[Source]) -> list[SessionFiles]:
        return [SessionFiles((Transcript(source, "main"),)) for source in sources]

    def parse_transcripts(self, session: SessionFiles, sink: ParseSink) -> None:
        """Add every completed block, and the blocks that a cut file left open."""
        sink.open_main()
        for transcript in session.transcripts:
            RecordedFile(transcript.source, sink).read()

    def translate_stream(self) -> EventTranslator:
        return EventTranslator()


_PIPE = "-"
_OPEN = ("pending", "running")


class RecordedFile:
    """One file of recorded stream events, read as blocks.

    Open blocks are reduced, completed ones go to the sink.
    """

    def __init__(self, source: Source, sink: ParseSink) -> None:
        self._source = source
        self._sink = sink
        self._open: dict[tuple[str, str], tuple[Block, Row]] = {}
        self._handles: dict[tuple[str, str], int] = {}
        self._open_calls: dict[tuple[str, str], str] = {}

    def read(self) -> None:
        """Read the file to its end. Never raises for what the bytes hold."""
        tally = self._sink.tally
        with self._source.open() as opened:
            for row in read_rows(opened, self._source.name, tally, self._sink.finding):
                if not _is_event(row.value):
                    tally.settle_hidden(row, "unknown")
                    self._add_unknown(row)
                elif row.value["type"] == "block_complete":
                    tally.settle_parsed(row)
                    self._complete(row)
                else:
                    tally.settle_folded(row, "update")
                    self._fold(row)
        for block, row in self._open.values():
            self._add(block, row)

    def _fold(self, row: Row) -> None:
        event = row.value
        if event["type"] == "metadata_update":
            return
        key = (event["conversationId"], event["blockId"])
        if event["type"] == "block_start":
            block = dict(event["block"])
            self._open[key] = (block, row)
        elif key in self._open:
            block = self._open[key][0]
            if event["type"] == "block_update":
                block.update(event["updates"])
            elif isinstance(block.get("content"), str):
                block["content"] += event["delta"]

    def _complete(self, row: Row) -> None:
        event = row.value
        self._open.pop((event["conversationId"], event["blockId"]), None)
        self._add(dict(event["block"]), row)

    def _add(self, block: Block, row: Row) -> None:
        block["source"] = row.source(self._source.name)
        if row.lossy:
            block["lossy"] = sorted({*block.get("lossy", ()), *row.lossy})
        superseded = block.pop("superseded", False)
        used = as_usage(block.pop("usage", None))
        if used:
            block["usage"] = used
        key = (block["conversationId"], block["id"])
        if key in self._handles:
            if self._ends_call(key, block):
                self._sink.amend(self._handles[key], status=block["status"])
                return
            self._sink.supersede(self._handles[key], "duplicate")
        self._handles[key] = handle = self._sink.add(block)
        if block["type"] == "tool_use" and block["status"] in _OPEN:
            self._open_calls[key] = block["toolUseId"]
        if superseded:
            self._sink.supersede(handle, "recorded")
        elif used:
            self._sink.use(block["conversationId"], used)

    def _ends_call(self, key: tuple[str, str], block: Block) -> bool:
        """Tell whether a block is that of an open call, with the status that its result gave it."""
        ends = block["type"] == "tool_use" and block["status"] not in _OPEN
        return ends and self._open_calls.pop(key, None) == block["toolUseId"]

    def _add_unknown(self, row: Row) -> None:
        if not self._sink.wants_hidden:
            return
        digest = short_hash(row.raw.removesuffix(b"\n"))
        fields = {
            "subtype": "log",
            "message": "an unknown row",
            "hidden": True,
            "metadata": {"rowType": str(row.value.get("type")), "row": row.value},
        }
        block_id = f"h{digest}:{row.line}"
        self._sink.add(
            make_block("system", block_id, MAIN, "", None, row.source(self._source.name), **fields)
        )


class EventTranslator:
    """Passes on stream events from a pipe, as `send --events` prints them (a `Translator`)."""

    def __init__(self) -> None:
        self._reducer = Reducer()
        self._damage: list[Finding] = []
        self._drifts = Drifts()
        self._feed = LineFeed(_PIPE, Tally(), self._damage.append, is_record=_is_event)

    @property
    def findings(self) -> Sequence[Finding]:
        return [*self._damage, *self._drifts.findings()]

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        for row in self._feed.rows(line):
            event = row.value
            if not _is_event(event):
                name = str(event.get("type", "without type"))
                self._drifts.note("row", name, row.source(_PIPE), None)
                continue
            # An event of a block whose start is missing is passed on all the same.
            with suppress(Invalid, TypeError, KeyError):
                self._reducer.apply(event)
            yield event

    def end(self) -> Iterator[StreamEvent]:
        for handle, block in self._reducer.open_blocks:
            yield blocks.block_complete(handle, block)


def _is_event(event: dict[str, Any]) -> bool:
    """Tell whether a row has the shape of a stream event, so that the reader cannot fail on it."""
    kind = event.get("type")
    if kind not in blocks.EVENT_TYPES or not isinstance(event.get("conversationId"), str):
        return False
    if kind == "metadata_update":
        return isinstance(event.get("metadata"), dict)
    if not isinstance(event.get("blockId"), str):
        return False
    if kind == "text_delta":
        return isinstance(event.get("delta"), str)
    if kind == "block_update":
        return isinstance(event.get("updates"), dict)
    block = event.get("block")
    if not isinstance(block, dict):
        return False
    try:
        # Counts that make no sense are left out of the block; the rest of it stands.
        check_block({name: value for name, value in block.items() if name != "usage"})
    except Invalid:
        return False
    return True
