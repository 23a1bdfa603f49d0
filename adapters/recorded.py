"""Transcripts that are recorded stream events, one a line: what `echo` and `script` keep.

The same lines come out of `agentsdir replay --events` and `send --events`, so a recorded session
can be read, and played, like any other transcript.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.contract import (
    NativeFile,
    Paths,
    SessionFiles,
    Transcript,
)
from agentsdir.formats import jsontext
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN, make_block
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from agentsdir.adapters.contract import (
        Content,
        SessionSpec,
    )
    from agentsdir.adapters.recorded_files import EventTranslator
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.sink import ParseSink
    from agentsdir.formats.reading.stream import StreamEvent


def saved_transcript(spec: SessionSpec) -> bytes:
    """Return what earlier turns of the session left; other files beside it are none of its."""
    saved = spec.transcripts.get(_file_name(spec.native_id))
    return saved.read() if saved else b""


def forked_transcript(
    transcripts: Mapping[str, Source], old_id: str, new_id: str
) -> Iterator[NativeFile]:
    """Yield a session's transcript as that of a new session."""
    saved = transcripts.get(_file_name(old_id))
    if saved is not None:
        yield NativeFile(_file_name(new_id), "main", saved)


def _file_name(native_id: str) -> str:
    return f"{native_id}.jsonl"


# How the first line begins when it is so long that the head holds only a part of it.
_LONG_EVENT = rb'\s*\{"type":\s*"block_(?:start|complete)",\s*"blockId":\s*"[^"]*",\s*"block":\s*\{'


class RecordedTranscript:
    """The transcript of one session, held in memory while a turn runs.

    Args:
        spec: its `native_id` names the file and, with `turn`, begins every block id.
        saved: the bytes of earlier turns.
    """

    def __init__(self, spec: SessionSpec, saved: bytes = b"") -> None:
        self.native_id = spec.native_id
        self.prefix = f"{spec.native_id}:{spec.turn}:"
        self._data = bytearray(saved)
        if self._data and not self._data.endswith(b"\n"):
            self._data += b"\n"

    @property
    def prompts(self) -> int:
        """How many turns it holds.

        One that died before it was saved is not among them, which is why ids go by the session's
        count of turns.
        """
        return sum(_is_prompt(line) for line in bytes(self._data).splitlines())

    @property
    def path(self) -> str:
        """Where it stands, relative to the architecture's storage."""
        return _file_name(self.native_id)

    def prompt(self, content: Content, timestamp: str) -> StreamEvent:
        """Begin the next turn; return the event of its `user_message` block."""
        block = self.block("user_message", "prompt", timestamp, content=content)
        return self.record(stream.block_complete(block["id"], block))

    def block(self, kind: str, part: str, timestamp: str, **fields: Any) -> Block:
        """Make a block of the current turn; its id says session, turn and part."""
        return make_block(kind, self.prefix + part, MAIN, self.native_id, timestamp, None, **fields)

    def record(self, event: StreamEvent) -> StreamEvent:
        """Append one event and return it."""
        self._data += jsontext.encode(event) + b"\n"
        return event

    def files(self) -> list[NativeFile]:
        """Return the transcript as the contract wants it."""
        return [NativeFile(self.path, "main", Source(self.path, data=bytes(self._data)))]


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
        """Look for an event of ours in the first lines."""
        del name
        for line in head.split(b"\n", 20)[:20]:
            try:
                event = jsontext.decode(line)
            except jsontext.JSONDecodeError:
                continue
            if isinstance(event, dict) and event.get("type") in stream.EVENT_TYPES:
                about = "metadata" if event["type"] == "metadata_update" else "blockId"
                return isinstance(event.get("conversationId"), str) and about in event
        return b"\n" not in head and re.match(_LONG_EVENT, head) is not None

    def paths(self, home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
        """There is no client of this architecture; its files stand where they are put."""
        del home, env
        return Paths(cwd, cwd)

    def discover(self, sources: Sequence[Source]) -> list[SessionFiles]:
        """Every file is a session."""
        return [SessionFiles((Transcript(source, "main"),)) for source in sources]

    def parse_transcripts(self, session: SessionFiles, sink: ParseSink) -> None:
        """Add every completed block, and those that a cut left open."""
        from agentsdir.adapters.recorded_files import RecordedFile

        sink.open_main()
        for transcript in session.transcripts:
            RecordedFile(transcript.source, sink).read()

    def translate_stream(self) -> EventTranslator:
        """Return a reader of stream events as they come: `send --events`, say, in a pipe."""
        from agentsdir.adapters.recorded_files import EventTranslator

        return EventTranslator()
