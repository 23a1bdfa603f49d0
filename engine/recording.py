"""The stream of a turn, kept as it happens and given back by `replay` (decisions D20 and D21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.formats import jsontext
from agentsdir.formats.directory.agent import open_agent
from agentsdir.formats.directory.durability import Disk, Durability
from agentsdir.formats.directory.log import read_log
from agentsdir.formats.directory.transcripts import STREAM
from agentsdir.formats.errors import Invalid, Uncertain
from agentsdir.formats.reading.blocks import block_key
from agentsdir.formats.reading.lines import LINE_CAP, read_lines
from agentsdir.formats.reading.stream import EVENT_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.engine.world import World
    from agentsdir.formats.directory import streams
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.points import Point
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.stream import StreamEvent

TURN_ENDS = ("turn.complete", "turn.error", "turn.aborted")
_CHUNK = 1024 * 1024


class Recording:
    """Writes the stream events of one turn into a file of their own, if that is `wanted`.

    The file is made with the first event, and synced once, when the log is to name it. A
    `provisional` one is never synced, and removed when it `is_spent`: when the log has all that it
    holds. A crash leaves one that the log does not name.
    """

    def __init__(self, world: World, paths: AgentPaths, *, wanted: bool) -> None:
        self._world = world
        self._paths = paths
        self.wanted = wanted
        self.provisional = False
        self.is_spent = False
        self._file: streams.StreamFile | None = None

    def take(self, event: StreamEvent, state: AgentState) -> None:
        """Write one event with the time it has now.

        Args:
            state: the agent's, whose count of turns has this one.

        Raises `NotRecorded` or `Uncertain` when the disk refuses.
        """
        if not (self.wanted or self.provisional):
            return
        line = _encode({**event, "timestamp": self._world.now()})
        if self._file is None:
            self._file = self._begin(state)
        self._file.write(line)

    def _begin(self, state: AgentState) -> streams.StreamFile:
        from agentsdir.formats.directory import streams

        disk, turn = self._world.disk, state.counters["turns"]
        if not self.wanted:
            disk = Disk(Durability.NEVER)
        try:
            return streams.StreamFile(self._paths, state.native["id"], turn, disk)
        except Uncertain as error:
            disk.doubt(self._paths.folder, error)
            raise

    def sync(self, writer: AgentWriter) -> None:
        """Make what was recorded durable, and have the log name it; raises as `append` does."""
        if self._file is not None and self.wanted:
            synced = self._file.finish().as_entry()
            writer.append("transcript.synced", {"files": [synced]}, self._world.now())

    def end(self) -> None:
        """Close the file, and remove it if nothing needs it."""
        if self._file is not None:
            self._file.close()
            if self.is_spent and not self.wanted:
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


def recorded_turns(paths: AgentPaths, until: Point) -> dict[str, dict[str, Any]]:
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
    from agentsdir.formats.directory import streams

    opened = streams.open_stream(paths, entry)
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
