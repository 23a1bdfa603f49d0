"""Syncing the log with the transcripts: before, during and after a turn, and after a crash (D7)."""

from __future__ import annotations

import os
from array import array
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import EarlierReading, ReaderState, program_of
from agentsdir.engine.parse import FoundSession, resume_session
from agentsdir.engine.providers import provider_errors
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import BLOCKS, EVENT_TYPES, Reducer, block_key, check_block
from agentsdir.formats.errors import Invalid, NotRecorded, Uncertain
from agentsdir.formats.ids import short_hash
from agentsdir.formats.rows import LINE_CAP, read_lines
from agentsdir.formats.sink import DROPPED, ParseSink
from agentsdir.formats.source import Source
from agentsdir.formats.store import transcripts
from agentsdir.formats.store.agent import all_synced, load_sound, open_agent, write_agent
from agentsdir.formats.store.checkpoint import (
    Checkpoint,
    number_of,
    read_checkpoint,
    write_checkpoint,
)
from agentsdir.formats.store.events import TURN_ENDS
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import open_plain
from agentsdir.formats.store.log import read_log, read_records
from agentsdir.formats.store.transcripts import STREAM, begins_as, store_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

_READ = ("main", "subagent")
_REPLACED = "sidecar"
"""The role of files that a client replaces instead of appending to them."""

_CHUNK = 1024 * 1024
_SAID = ("assistant_text", "thinking")


def log_block(
    writer: AgentWriter | UnpublishedAgent, turn_id: str | None, block: Block, ts: str
) -> Block:
    """Append a block, cleaned if it cannot be encoded; return it as it was logged.

    Its `source` is a place in the client's store, which the log of an agent does not name.
    """
    if block.get("source") is not None:
        block = {**block, "source": None}
    try:
        writer.append("block", {"turn_id": turn_id, "block": block}, ts)
    except Invalid as error:
        if error.kind != "value-refused":
            raise
        # Values of a provider may not round-trip; its transcript keeps the bytes (D6).
        block = jsontext.cleaned(block, depth=3)
        writer.append("block", {"turn_id": turn_id, "block": block}, ts)
    return block


def store_transcripts(
    writer: AgentWriter,
    natives: Sequence[NativeFile],
    is_continuation: Callable[[Source, Source], bool] = lambda _saved, _present: False,
) -> list[Synced]:
    """Store what was appended to the provider's transcripts; return the changed ones.

    Args:
        goes_on: returns whether a file that was rewritten may replace its copy.

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
    """Log the stored transcripts, and put rewritten copies in their places."""
    if changed:
        entries = [synced.as_entry() for synced in changed]
        writer.append("transcript.synced", {"files": entries}, ts)
    if any(synced.rewritten for synced in changed):
        writer.finish_rewrites()


class _NumberedSink(ParseSink):
    """A sink that also notes of each block what tells whether it has to be looked at.

    Args:
        since: by file name, the offset in bytes from which on rows are new.
    """

    def __init__(self, since: Mapping[str, int]) -> None:
        super().__init__()
        self._since = since
        # By handle: the number of the block's key. And the handles of blocks of new rows.
        self.numbers = array("q")
        self.new: set[int] = set()

    def add(self, block: Block) -> int:
        """Append a block."""
        handle = super().add(block)
        if handle != DROPPED:
            self.numbers.append(number_of(block_key(block)))
            if _is_new(block, self._since):
                self.new.add(handle)
        return handle


class ChangedTranscripts:
    """Reads a session's transcripts that were just stored, from the provider's own files.

    Args:
        paths: of the agent.
        synced: what the log has of the session's transcripts, by native path.
        architecture: has the reader.
        natives: the session's files.
        changed: those whose changes were stored, and are not in the log yet.
    """

    def __init__(
        self,
        paths: AgentPaths,
        synced: Mapping[str, Mapping[str, Any]],
        architecture: Architecture,
        natives: Sequence[NativeFile],
        changed: Sequence[Synced],
    ) -> None:
        self._paths = paths
        self._architecture = architecture
        self._changed = changed
        self._sources = {native.path: native.source for native in natives if native.role in _READ}
        self._main = next((native for native in natives if native.role == "main"), None)
        entries = {**synced, **{one.path: one.as_entry() for one in changed}}
        self._digests = {
            native.path: str(entries[native.path]["sha256"])
            for native in natives
            if native.path in entries and native.role in (*_READ, _REPLACED)
        }
        # How many bytes of the main transcript are stored.
        self._size = entries.get(self._main.path, {}).get("size", 0) if self._main else 0
        # Where the reading began and ended, and the numbers of all blocks' keys up to there.
        self._begin = 0
        self._end: ReaderState | None = None
        self._keys = array("q")

    def new_blocks(self, logged: LoggedBlocks, *, of_turn: bool) -> Iterator[Block]:
        """Yield the blocks that the log lacks or has differently, in their order.

        Logged blocks that are not in the transcripts any more keep their records.

        Args:
            logged: of rows that the log knew, only blocks in it are compared.
            of_turn: whether it has only blocks of the turn that made the changes. What was read
                before is then not read again, unless it may have one of them.
        """
        since = {
            self._sources[one.path].name: one.grown_from
            for one in self._changed
            if one.path in self._sources
        }
        known = set(map(number_of, logged.keys()))
        with provider_errors():
            for sink in self._read(logged, since, of_turn=of_turn):
                for handle in chain.from_iterable(sink.shown()):
                    number = sink.numbers[handle]
                    self._keys.append(number)
                    if number not in known and handle not in sink.new:
                        continue
                    for block in _unlogged(sink.block(handle), logged, since):
                        known.add(number_of(block_key(block)))
                        yield block

    def _read(
        self, logged: LoggedBlocks, since: Mapping[str, int], *, of_turn: bool
    ) -> Iterator[_NumberedSink]:
        architecture = self._architecture
        if architecture.reader is None:
            return
        with registry.adapter_errors(architecture):
            files = architecture.reader.discover(list(self._sources.values()))
        sessions = [FoundSession(architecture, one) for one in files]
        if self._size >= _CHUNK and len(sessions) == 1:
            known = self._checkpoint(logged) if of_turn else None
            sink = None if known is None else self._read_on(sessions[0], since, known)
            if sink is None:
                sink = _NumberedSink(since)
                self._end = resume_session(sessions[0], sink, None, keeps=True)
            yield sink
            return
        for found in sessions:
            sink = _NumberedSink(since)
            resume_session(found, sink, None, keeps=False)
            yield sink

    def _read_on(
        self, found: FoundSession, since: Mapping[str, int], known: Checkpoint
    ) -> _NumberedSink | None:
        """Read on from a checkpoint; None where that cannot be, whatever is wrong with it."""
        sink = _NumberedSink(since)
        state, keeps = ReaderState(known.size, known.state), self._size - known.size >= _CHUNK
        try:
            self._end = resume_session(found, sink, state, keeps=keeps)
        except Exception:  # noqa: BLE001, the whole transcript is there
            return None
        self._begin = known.size
        self._keys.extend(known.keys)
        return sink

    def _checkpoint(self, logged: LoggedBlocks) -> Checkpoint | None:
        """Return the checkpoint; None if it is not of these files, or of what is compared."""
        known = _checkpoint_of(self._paths, self._architecture, self._main, self._digests)
        if known is None:
            return None
        grown_from = {one.path: one.grown_from for one in self._changed}
        fits = known.size <= grown_from.get(known.path, known.size)
        return known if fits and not known.may_have(logged.keys()) else None

    def keep(self) -> None:
        """Write a checkpoint, if one is worth it. The log has all blocks and names the files."""
        main, end = self._main, self._end
        if main is None or end is None or end.size - self._begin < _CHUNK:
            return
        if end.size == self._size:  # else the client has written on, after the file was stored
            kept = Checkpoint(
                self._architecture.name, main.path, end.size, self._digests, self._keys, end.state
            )
            write_checkpoint(self._paths, kept)


def _checkpoint_of(
    paths: AgentPaths,
    architecture: Architecture,
    main: NativeFile | None,
    digests: Mapping[str, str],
) -> Checkpoint | None:
    """Return an agent's checkpoint; None if it is not of these files.

    Args:
        paths: of the agent.
        architecture: has the reader.
        main: the main transcript.
        digests: those of all files, by native path, as they are stored.
    """
    known = read_checkpoint(paths)
    if main is None or known is None:
        return None
    others = dict(known.sha256)
    digest = others.pop(main.path, "")
    fits = (
        known.reader == architecture.name
        and known.path == main.path
        and all(digests.get(path) == one for path, one in others.items())
        and begins_as(paths, main.path, known.size, digest)
    )
    return known if fits else None


def _earlier_reading(
    paths: AgentPaths,
    state: AgentState,
    architecture: Architecture,
    natives: Sequence[NativeFile],
) -> EarlierReading | None:
    """Return where the last reading of the client's files ended, which are stored as they are."""
    main = next((native for native in natives if native.role == "main"), None)
    digests = {path: str(entry["sha256"]) for path, entry in state.transcripts.items()}
    known = _checkpoint_of(paths, architecture, main, digests)
    if known is None:
        return None
    keys = frozenset(known.keys)
    return EarlierReading(ReaderState(known.size, known.state), lambda key: number_of(key) in keys)


def sync_with_client(
    services: Services,
    paths: AgentPaths,
    state: AgentState,
    architecture: Architecture,
    provider: Provider,
    spec: SessionSpec,
) -> tuple[AgentState, SessionSpec]:
    """Store and log what the client has appended meanwhile, and write missing files to its store.

    Turns in the client become blocks outside any turn of the agent. They are logged before the log
    names the transcripts, so that the sync is repeated after a crash.

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
        # In this order: after a crash in between, the next sync repeats it.
        found = ChangedTranscripts(paths, state.transcripts, architecture, natives, changed)
        for block in found.new_blocks(LoggedBlocks.of_log(paths), of_turn=False):
            with write_agent(paths, disk=services.disk, known=state) as writer:
                log_block(writer, None, block, services.now())
                state = writer.state
        with write_agent(paths, disk=services.disk, known=state) as writer:
            log_transcripts(writer, changed, services.now())
            state = writer.state
        found.keep()
        spec = spec._replace(transcripts=load_sound(paths, state))
    _place(program, spec, natives)
    earlier = partial(_earlier_reading, paths, state, architecture, natives)
    compared = frozenset((one.path, one.source.path) for one in natives if one.source.path)
    return state, spec._replace(compared=compared, earlier=earlier)


def place_missing(provider: Provider, spec: SessionSpec) -> None:
    """Write stored transcripts that the client lacks to its store (decision D11)."""
    if (program := program_of(provider)) is not None:
        with provider_errors():
            natives = program.native_files(spec)
        _place(program, spec, natives)


def _place(provider: ProgramProvider, spec: SessionSpec, natives: Sequence[NativeFile]) -> None:
    if spec.transcripts.keys() - {native.path for native in natives}:
        with provider_errors():
            provider.materialize(spec)


class LoggedBlocks:
    """The blocks that the log has: of one running turn, or of the whole log.

    It keeps a digest of each block, and whole blocks only for synthetic results and their calls.
    Blocks of an attempt that a fallback has superseded are not compared: its transcript does not
    have that change.
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
        """Add a block as it was logged."""
        self._digests[block_key(block)] = _digest(block)
        self._superseded.discard(block_key(block))
        if block.get("type") == "tool_result" and block.get("synthetic"):
            self._synthetic[_answered(block)] = block
        elif block.get("type") == "tool_use" and _answered(block) in self._synthetic:
            self._closed[_answered(block)] = block

    def keys(self) -> Iterable[tuple[str, str]]:
        """Return the keys of all of them."""
        return self._digests.keys()

    def has(self, block: Block) -> bool:
        """Return whether the log has a block with this key."""
        return block_key(block) in self._digests

    def differs(self, block: Block) -> bool:
        """Return whether the log lacks the block or has it differently."""
        key = block_key(block)
        return key not in self._superseded and self._digests.get(key) != _digest(block)

    def replaced_by(self, block: Block) -> Iterator[Block]:
        """Yield the logged blocks that a block of the client replaces, as superseded.

        A result replaces a synthetic one; a call replaces one from the stream with another id.
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


def _is_new(block: Block, since: Mapping[str, int]) -> bool:
    """Tell whether a block stands in a new row."""
    place = block.get("source") or {}
    start = since.get(str(place.get("file")))
    offset = place.get("offset")  # none for what opens and closes a thread
    return start is not None and (offset is None or offset >= start)


def _unlogged(block: Block, logged: LoggedBlocks, since: Mapping[str, int]) -> Iterator[Block]:
    """Yield a block of a transcript if the log lacks it or has it differently.

    Args:
        since: by source name, the offset in bytes from which on rows are new.
    """
    if not logged.has(block):
        if not _is_new(block, since) or block.get("superseded"):
            return
    elif not logged.differs(block):
        return
    block = {**block, "source": None}
    yield from logged.replaced_by(block)
    yield block


class StreamRecording:
    """Writes the stream events of one turn to a file, if `wanted` (decisions D20 and D21).

    The file is created with the first event, and synced to the disk once, before the log names it.
    A `provisional` file is never synced, and is removed when it `is_redundant`: the log has all of
    it. A crash leaves a file that the log does not name.
    """

    def __init__(self, services: Services, paths: AgentPaths, *, wanted: bool) -> None:
        self._services = services
        self._paths = paths
        self.wanted = wanted
        self.provisional = False
        self.is_redundant = False
        self._file: transcripts.StreamFile | None = None

    def take(self, event: StreamEvent, state: AgentState) -> None:
        """Write one event with the present time.

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
        """Sync the file to the disk, and log its name; raises as `append` does."""
        if self._file is not None and self.wanted:
            synced = self._file.finish().as_entry()
            writer.append("transcript.synced", {"files": [synced]}, self._services.now())

    def end(self) -> None:
        """Close the file, and remove it if the log has all of it."""
        if self._file is not None:
            self._file.close()
            if self.is_redundant and not self.wanted:
                self._file.remove()
            self._file = None


def _encode(event: StreamEvent) -> bytes:
    try:
        line = jsontext.encode(event) + b"\n"
    except Invalid:  # a delta that was cut in a surrogate pair; the whole block follows
        line = jsontext.encode(jsontext.clean(event, set())) + b"\n"
    if len(line) > LINE_CAP:
        message = f"a stream event of {len(line)} bytes is over the limit of {LINE_CAP}"
        raise Invalid(message, kind="too-large")
    return line


class RecordedTurn(NamedTuple):
    """A checked stream file; `blocks` are the keys of the blocks that it completes."""

    stream: BinaryIO
    blocks: set[tuple[str, str]]

    def events(self) -> Iterator[StreamEvent]:
        """Yield the events, and close the file."""
        with self.stream:
            for line in read_lines(self.stream):
                yield jsontext.decode(line.data or b"")


def recorded_turns(paths: AgentPaths, until: Cursor) -> dict[str, dict[str, Any]]:
    """Return the log's entries of recorded streams up to `until`, by turn id."""
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
    """Return whether a log may name a stream: few do, and decoding a log takes long."""
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
    """Open the recorded stream of a `transcript.synced` entry.

    Raises `Invalid` if it is missing, or differs from what was recorded.
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


# Streams of turns whose process died (D20). The client's transcript lacks the message that it was
# writing; the stream has the beginning of it.


class LostStream(NamedTuple):
    """A stream that the log does not name, and the blocks in it that the log lacks."""

    path: Path
    blocks: list[Block]
    is_redundant: bool
    """Whether the log has all of the stream, once it has these blocks."""


def lost_streams(
    paths: AgentPaths, state: AgentState, logged: AbstractSet[tuple[str, str]]
) -> list[LostStream]:
    """Return the streams of an open turn whose process died. Writes nothing.

    Args:
        state: of the agent.
        logged: the keys of the turn's blocks in the log.
    """
    found = []
    stem, number = f"{state.native['id']}/turn-{state.counters['turns']}", 1
    native = f"{stem}.stream"
    with suppress(Invalid):  # a native id that is no name has no folder
        while os.path.lexists(path := store_path(paths, native)):
            if native not in all_synced(paths, state) and (stream := _read(path, logged)):
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
    lost = [block for block in lacking if _has_content(block) and _is_whole(block)]
    return LostStream(path, lost, bool(blocks) and len(lost) == len(lacking))


def _has_content(block: Block) -> bool:
    """Return whether a block has content.

    The input of a pending call may be incomplete; a running call has all of it.
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
