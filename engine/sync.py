"""Transcripts and the log, kept level: before a turn, during it, at its end, and after a crash."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import program_of
from agentsdir.engine.parse import FoundSession, parse_session
from agentsdir.engine.providers import provider_errors
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import BLOCKS, EVENT_TYPES, Reducer, block_key, check_block
from agentsdir.formats.errors import Invalid, NotRecorded, Uncertain
from agentsdir.formats.ids import short_hash
from agentsdir.formats.rows import LINE_CAP, read_lines
from agentsdir.formats.source import Source
from agentsdir.formats.store import transcripts
from agentsdir.formats.store.agent import open_agent, write_agent
from agentsdir.formats.store.events import TURN_ENDS
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import open_plain
from agentsdir.formats.store.log import read_log, read_records
from agentsdir.formats.store.transcripts import STREAM, store_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from agentsdir.adapters.protocol import (
        Architecture,
        NativeFile,
        ProgramProvider,
        Provider,
        SessionSpec,
    )
    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.store.agent import AgentWriter, UnpublishedAgent
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Cursor
    from agentsdir.formats.store.state import AgentState
    from agentsdir.formats.store.transcripts import Synced


# Transcripts and the log, kept level: before a turn, at its end, and at a reset (decision D7).

_REPLACED = "sidecar"
"""The role of files that a client replaces as it goes on."""


def log_block(
    writer: AgentWriter | UnpublishedAgent, turn_id: str | None, block: Block, ts: str
) -> Block:
    """Append a block, made writable if need be; return it as it was logged."""
    try:
        writer.append("block", {"turn_id": turn_id, "block": block}, ts)
    except Invalid as error:
        if error.kind != "value-refused":
            raise
        # What a provider says need not round-trip; its transcript keeps the bytes (D6).
        block = jsontext.cleaned(block, depth=3)
        writer.append("block", {"turn_id": turn_id, "block": block}, ts)
    return block


def store_transcripts(
    writer: AgentWriter,
    natives: Sequence[NativeFile],
    is_continuation: Callable[[Source, Source], bool] = lambda _saved, _present: False,
) -> list[Synced]:
    """Store what the provider's transcripts gained; return what the log has to be told.

    Args:
        is_continuation: tells whether a file that was written anew may take the place of its copy.

    Raises `Invalid` (kind ``transcript-differs``), overwriting nothing, and errors of the disk.
    """
    changed = []
    for native in natives:
        replaced = native.role == _REPLACED
        try:
            synced = writer.store(native.path, native.role, native.source, rewrite=replaced)
        except Invalid as error:
            if error.kind != "transcript-differs":
                raise
            copy = transcripts.store_path(writer.paths, native.path)
            if not is_continuation(Source(native.path, path=copy), native.source):
                raise
            synced = writer.store(native.path, native.role, native.source, rewrite=True)
        if synced:
            changed.append(synced)
    return changed


def log_transcripts(writer: AgentWriter, changed: Sequence[Synced], ts: str) -> None:
    """Have the log name what was stored, and put rewritten copies in their places."""
    if changed:
        entries = [synced.as_entry() for synced in changed]
        writer.append("transcript.synced", {"files": entries}, ts)
    if any(synced.rewritten for synced in changed):
        writer.finish_rewrites()


def new_blocks(
    architecture: Architecture,
    natives: Sequence[NativeFile],
    changed: Sequence[Synced],
    logged: LoggedBlocks,
) -> Iterator[Block]:
    """Yield what the transcripts show since they `changed`, and the log lacks or has differently.

    They are read from the provider's own files, which were just stored.
    """
    sources = {native.path: native.source for native in natives}
    read = [native.source for native in natives if native.role in ("main", "subagent")]
    since = {sources[synced.path].name: synced.grown_from for synced in changed}
    with provider_errors():
        yield from unlogged_blocks(architecture, read, logged, since)


def sync_with_client(
    services: Services,
    paths: AgentPaths,
    state: AgentState,
    architecture: Architecture,
    provider: Provider,
    spec: SessionSpec,
) -> tuple[AgentState, SessionSpec]:
    """Take over what the real client did meanwhile, and give it what it lacks.

    Turns that were made in the client become blocks outside any turn of ours, and are stored before
    the log names them: done half, it is done again.

    Returns:
        The agent's state, and the spec with its transcripts as they are stored now.

    Raises `Invalid` (kind ``transcript-differs``) when a native file is shorter than its stored
    copy or another; nothing is overwritten then.
    """
    if (program := program_of(provider)) is None:
        return state, spec
    with provider_errors():
        natives = program.native_files(spec)
    with write_agent(paths, disk=services.disk, known=state) as writer:
        changed = store_transcripts(writer, natives, partial(program.is_continuation, ours=False))
        state = writer.state
    if changed:
        # Stored, logged, named: who dies in between is followed by one who does it again.
        for block in new_blocks(architecture, natives, changed, LoggedBlocks.of_log(paths)):
            with write_agent(paths, disk=services.disk, known=state) as writer:
                log_block(writer, None, block, services.now())
                state = writer.state
        with write_agent(paths, disk=services.disk, known=state) as writer:
            log_transcripts(writer, changed, services.now())
            state = writer.state
        saved = transcripts.load_sound(paths, state.transcripts, state.native["id"])
        spec = spec._replace(transcripts=saved)
    _place(program, spec, natives)
    return state, spec


def place_missing(provider: Provider, spec: SessionSpec) -> None:
    """Put saved transcripts where the client finds them, if they are not there (decision D11)."""
    if (program := program_of(provider)) is not None:
        with provider_errors():
            natives = program.native_files(spec)
        _place(program, spec, natives)


def _place(provider: ProgramProvider, spec: SessionSpec, natives: Sequence[NativeFile]) -> None:
    if spec.transcripts.keys() - {native.path for native in natives}:
        with provider_errors():
            provider.materialize(spec)


# What a session's transcripts show beside what its log has (decisions D7 and D20).


class LoggedBlocks:
    """The blocks that the log has: of one turn while it runs, or of all of them.

    It holds a digest of each, and whole only the calls which seemed never to return and the
    results that were made up for them. What an attempt left that failed, and was given up for
    another provider's, stays as it was logged: its transcript does not say so.
    """

    def __init__(self) -> None:
        self._digests: dict[tuple[str, str], str] = {}
        self._synthetic: dict[tuple[str, str], Block] = {}
        self._closed: dict[tuple[str, str], Block] = {}
        self._superseded: set[tuple[str, str]] = set()

    @classmethod
    def of_log(cls, paths: AgentPaths) -> LoggedBlocks:
        """Read all of them from an agent's log."""
        found = cls()
        attempt: set[tuple[str, str]] = set()
        for record in read_records(paths.log):
            if record.event == "turn.start":
                attempt = set()
            elif record.event == "provider.fallback":
                found._superseded |= attempt
            elif record.event == "block" and isinstance(block := record.data.get("block"), dict):
                found.add(block)
                attempt.add(block_key(block))
        return found

    def add(self, block: Block) -> None:
        """Take note of a block as it was logged."""
        self._digests[block_key(block)] = _digest(block)
        self._superseded.discard(block_key(block))
        if block.get("type") == "tool_result" and block.get("synthetic"):
            self._synthetic[_answered(block)] = block
        elif block.get("type") == "tool_use" and _answered(block) in self._synthetic:
            self._closed[_answered(block)] = block

    def has(self, block: Block) -> bool:
        """Tell whether the log has a block of this id."""
        return block_key(block) in self._digests

    def differs(self, block: Block) -> bool:
        """Tell whether the log has no such block, or has it differently."""
        key = block_key(block)
        return key not in self._superseded and self._digests.get(key) != _digest(block)

    def replaced_by(self, block: Block) -> Iterator[Block]:
        """Yield, as superseded, what one of the client's takes the place of.

        A result, that of one which was made up; a call, that of one which only the stream knew and
        which bears another id.
        """
        kind, key = block.get("type"), _answered(block)
        replaced = []
        if kind in ("tool_use", "subagent"):
            replaced.append(self._closed.pop(key, None))
        if kind == "tool_result" or (kind == "subagent" and "output" in block):
            replaced.append(self._synthetic.pop(key, None))
        for other in replaced:
            if other is not None and block_key(other) != block_key(block):
                yield {**other, "superseded": True}


def _answered(block: Block) -> tuple[str, str]:
    return str(block.get("conversationId")), str(block.get("toolUseId"))


def _digest(block: Block) -> str:
    row = BLOCKS.get(str(block.get("type")))
    # A log may hold a type that this program does not know: no reader makes it.
    names = row.compared if row is not None else block
    compared = {name: block[name] for name in names if name in block}
    try:
        return short_hash(jsontext.encode(compared))
    except Invalid:
        return short_hash(jsontext.encode(jsontext.clean(compared, set())))


def unlogged_blocks(
    architecture: Architecture,
    sources: Sequence[Source],
    logged: LoggedBlocks,
    since: Mapping[str, int],
) -> Iterator[Block]:
    """Yield the blocks that transcripts show and the log lacks, or has differently, in their order.

    What was logged and is gone from the transcripts keeps its record.

    Args:
        sources: the session's main transcript and its subagents'.
        since: by source name, the offset in bytes from which on rows are new. Of older rows, only
            blocks in `logged` are compared.
    """
    reader = architecture.reader
    if reader is None:
        return
    with registry.adapter_errors(architecture):
        sessions = reader.discover(sources)
    for files in sessions:
        sink = parse_session(FoundSession(architecture, files), hidden=False)
        for block in sink.blocks("all"):
            place = block.get("source") or {}
            start = since.get(str(place.get("file")))
            offset = place.get("offset")  # none for what opens and closes a thread
            is_new = start is not None and (offset is None or offset >= start)
            if not logged.has(block):
                if not is_new or block.get("superseded"):
                    continue
            elif not logged.differs(block):
                continue
            block = {**block, "source": None}
            yield from logged.replaced_by(block)
            yield block


# The stream of a turn, kept as it happens and given back by `replay` (decisions D20 and D21).

_CHUNK = 1024 * 1024


class StreamRecording:
    """Writes the stream events of one turn into a file of their own, if that is `wanted`.

    The file is made with the first event, and synced once, when the log is to name it. A
    `provisional` one is never synced, and removed when it `is_redundant`: when the log has all it
    holds. A crash leaves one that the log does not name.
    """

    def __init__(self, services: Services, paths: AgentPaths, *, wanted: bool) -> None:
        self._services = services
        self._paths = paths
        self.wanted = wanted
        self.provisional = False
        self.is_redundant = False
        self._file: transcripts.StreamFile | None = None

    def take(self, event: StreamEvent, state: AgentState) -> None:
        """Write one event with the time it has now.

        Args:
            state: the agent's, whose count of turns has this one.

        Raises `NotRecorded` or `Uncertain` when the disk refuses.
        """
        if not (self.wanted or self.provisional):
            return
        line = _encode({**event, "timestamp": self._services.now()})
        if self._file is None:
            self._file = self._begin(state)
        self._file.write(line)

    def _begin(self, state: AgentState) -> transcripts.StreamFile:
        disk, turn = self._services.disk, state.counters["turns"]
        if not self.wanted:
            disk = Disk(Durability.NEVER)
        try:
            return transcripts.StreamFile(self._paths, state.native["id"], turn, disk)
        except Uncertain as error:
            disk.doubt(self._paths.folder, error)
            raise

    def sync(self, writer: AgentWriter) -> None:
        """Make what was recorded durable, and have the log name it; raises as `append` does."""
        if self._file is not None and self.wanted:
            synced = self._file.finish().as_entry()
            writer.append("transcript.synced", {"files": [synced]}, self._services.now())

    def end(self) -> None:
        """Close the file, and remove it if nothing needs it."""
        if self._file is not None:
            self._file.close()
            if self.is_redundant and not self.wanted:
                self._file.remove()
            self._file = None


def _encode(event: StreamEvent) -> bytes:
    try:
        line = jsontext.encode(event) + b"\n"
    except Invalid:  # a delta that a client cut in a surrogate pair; the whole block follows
        line = jsontext.encode(jsontext.clean(event, set())) + b"\n"
    if len(line) > LINE_CAP:
        message = f"a stream event of {len(line)} bytes is over the limit of {LINE_CAP}"
        raise Invalid(message, kind="too-large")
    return line


class RecordedTurn(NamedTuple):
    """A recorded stream, checked; `blocks` are conversation and id of each that it completes."""

    stream: BinaryIO
    blocks: set[tuple[str, str]]

    def events(self) -> Iterator[StreamEvent]:
        """Yield the events, and close the file."""
        with self.stream:
            for line in read_lines(self.stream):
                yield jsontext.decode(line.data or b"")


def recorded_turns(paths: AgentPaths, until: Cursor) -> dict[str, dict[str, Any]]:
    """Return what the log says, as far as `until`, of each turn's recorded stream, by turn id."""
    found: dict[str, dict[str, Any]] = {}
    if not _mentions_streams(paths):
        return found
    turn = None
    with open_agent(paths) as opened:
        for line in read_log(opened, str(paths.log)):
            if until.is_passed_by(line):
                break
            if (record := line.record) is not None:
                if record.event in TURN_ENDS:
                    turn = None
                elif isinstance(named := record.data.get("turn_id"), str):
                    turn = named
                elif record.event == "transcript.synced" and turn is not None:
                    for entry in _streams(record.data):
                        found[turn] = entry
            if until.is_reached_by(line):
                break
    return found


def _mentions_streams(paths: AgentPaths) -> bool:
    """Tell whether there can be one at all: few logs name any, and decoding one takes its time."""
    word, before = b'"' + STREAM.encode() + b'"', b""
    with open_agent(paths) as opened:
        while chunk := opened.read(_CHUNK):
            if word in before + chunk:
                return True
            before = chunk[-len(word) :]
    return False


def _streams(data: dict[str, Any]) -> list[dict[str, Any]]:
    files = data.get("files")
    entries = files if isinstance(files, list) else []
    return [e for e in entries if isinstance(e, dict) and e.get("role") == STREAM]


def load_recorded(paths: AgentPaths, entry: dict[str, Any]) -> RecordedTurn:
    """Return the recorded stream that a `transcript.synced` entry names.

    Raises `Invalid` with the reason when it is missing, or not to the byte what was recorded.
    """
    opened = transcripts.open_stream(paths, entry)
    blocks: set[tuple[str, str]] = set()
    try:
        for line in read_lines(opened):
            event = decode_event(line.data)
            if event is None:
                raise Invalid(f"line {line.number} is no stream event")
            if event["type"] == "block_complete":
                blocks.add(block_key(event.get("block")))
        opened.seek(0)
    except BaseException:
        opened.close()
        raise
    return RecordedTurn(opened, blocks)


def decode_event(line: bytes | None) -> StreamEvent | None:
    """Return the stream event that a line of a stream holds, or None."""
    try:
        event = jsontext.decode(line or b"")
    except jsontext.JSONDecodeError:
        return None
    return event if isinstance(event, dict) and event.get("type") in EVENT_TYPES else None


# What the stream of a turn still knows when its process died (decision D20).
#
# A client loses the message that it was writing, and its transcript never has it. The stream, which
# is kept while a turn runs, has what was said so far.

_SAID = ("assistant_text", "thinking")


class LostStream(NamedTuple):
    """A stream that no event names: the blocks that the log lacks, and whether that is all."""

    path: Path
    blocks: list[Block]
    is_redundant: bool
    """Whether the log has all of the stream, once it has these blocks."""


def lost_streams(
    paths: AgentPaths, state: AgentState, logged: AbstractSet[tuple[str, str]]
) -> list[LostStream]:
    """Return the streams that the turn left whose process died. Writes nothing.

    Args:
        state: of the agent, whose open turn it is.
        logged: the keys of the blocks that the log has of that turn.
    """
    found = []
    stem, number = f"{state.native['id']}/turn-{state.counters['turns']}", 1
    native = f"{stem}.stream"
    with suppress(Invalid):  # a native id that is no name has no folder
        while os.path.lexists(path := store_path(paths, native)):
            if native not in state.transcripts and (stream := _read(path, logged)):
                found.append(stream)
            number += 1
            native = f"{stem}-{number}.stream"
    return found


def _read(path: Path, logged: AbstractSet[tuple[str, str]]) -> LostStream | None:
    reducer = Reducer()
    try:
        with os.fdopen(open_plain(path), "rb") as opened:
            for line in read_lines(opened):
                event = decode_event(line.data)
                if event is not None:  # the last line may be torn
                    with suppress(Invalid, KeyError, TypeError, AttributeError):
                        reducer.apply(event)
    except (Invalid, NotRecorded, OSError):
        return None
    blocks = [block for thread in reducer.conversations.values() for block in thread]
    lacking = [block for block in blocks if block_key(block) not in logged]
    lost = [block for block in lacking if _was_said(block) and _is_whole(block)]
    return LostStream(path, lost, bool(blocks) and len(lost) == len(lacking))


def _was_said(block: Block) -> bool:
    """Tell whether there is more to a block than its beginning.

    A call that runs was made; one that is pending may be one whose input still came.
    """
    if block.get("type") == "tool_use":
        return block.get("status") == "running"
    return block.get("type") in _SAID and bool(block.get("content"))


def _is_whole(block: Block) -> bool:
    try:
        check_block(block)
    except Invalid:
        return False
    return True
