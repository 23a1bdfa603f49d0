"""Replaying a session from its log as stream events (decision D21)."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from agentsdir.engine.sync import load_recorded, recorded_turns
from agentsdir.formats import blocks
from agentsdir.formats.blocks import MAIN, block_key
from agentsdir.formats.errors import Invalid
from agentsdir.formats.findings import Finding
from agentsdir.formats.source import LineSpool, RecordSpool
from agentsdir.formats.store import derived
from agentsdir.formats.store.agent import open_agent, read_agent, without_live_tail
from agentsdir.formats.store.events import TURN_ENDS
from agentsdir.formats.store.log import END, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.source import Kept
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Cursor, Record

_IN_MEMORY = 4 * 1024 * 1024  # bytes of texts; the rest goes to a scratch file


def replay(
    paths: AgentPaths,
    report: Callable[[Finding], None],
    until: Cursor = END,
    *,
    streams: bool = False,
) -> Iterator[StreamEvent]:
    """Yield the recorded session as stream events, each with its recorded `timestamp`.

    One `block_complete` for each block and one `metadata_update` for each turn that ended. Damage
    in the log, as far as `until`, is reported and passed over; it never ends the replay. Raises
    what `open_agent` raises.

    Args:
        streams: for a turn with a recorded stream, yield its events in place of the blocks.
    """
    player = _Player(paths, report, recorded_turns(paths, until) if streams else {})
    with open_agent(paths) as opened:
        for line in read_log(opened, str(paths.log)):
            if until.is_passed_by(line):
                return
            for finding in without_live_tail(paths, line.findings):
                report(finding)
            if line.record is not None:
                yield from player.events(line.record)
            if until.is_reached_by(line):
                return


class _Player:
    """Turns records into events.

    `turns` has the `transcript.synced` entry of each stream.
    """

    def __init__(
        self,
        paths: AgentPaths,
        report: Callable[[Finding], None],
        turns: dict[str, dict[str, Any]],
    ) -> None:
        self._paths = paths
        self._report = report
        self._turns = turns
        self._played: dict[str, set[tuple[str, str]]] = {}

    def events(self, record: Record) -> Iterator[StreamEvent]:
        turn = str(record.data.get("turn_id"))
        if turn in self._turns:
            yield from self._stream(turn, self._turns.pop(turn))
        event = recorded_event(record)
        played = self._played.get(turn)
        if record.event in TURN_ENDS:
            self._played.pop(turn, None)
        if event is None or (played and "block" in event and block_key(event["block"]) in played):
            return
        yield event

    def _stream(self, turn: str, entry: dict[str, Any]) -> Iterator[StreamEvent]:
        try:
            recorded = load_recorded(self._paths, entry)
        except Invalid as error:
            path = f"{self._paths.transcripts}/{entry.get('path')}"
            message = f"the recorded stream is lost, its blocks stand in for it: {error.message}"
            self._report(Finding("stream-lost", path, message))
            return
        self._played[turn] = recorded.blocks
        yield from recorded.events()


def settled(events: Iterable[StreamEvent], render: Callable[[StreamEvent], str]) -> Iterator[str]:
    """Yield events as texts, some at a time; a block once, at its first place, in its last version.

    The events are read to their end first. Texts wait in a spool, and of each block no more than a
    hash of its key is held. Raises `AgentsdirError` when the disk refuses the spool.
    """
    texts = Settled()
    for event in events:
        key = hash(block_key(event["block"])) if "block" in event else None
        texts.add(render(event).encode(errors="surrogatepass"), key)
    for piece in texts.pieces():
        yield piece.decode(errors="surrogatepass")


class Settled:
    """Texts that are written one by one, and read back with each in its last version.

    Of each key no more than its place is held; the texts wait in a spool.
    """

    def __init__(self) -> None:
        self._texts = LineSpool(_IN_MEMORY)
        self._amended = RecordSpool(_IN_MEMORY)
        self._places: dict[int, int] = {}
        self._last: dict[int, Kept] = {}

    def __len__(self) -> int:
        """Return how many places there are."""
        return len(self._texts)

    def has(self, key: int) -> bool:
        """Tell whether there is a text of this key."""
        return key in self._places

    def add(self, text: bytes, key: int | None = None) -> None:
        """Add a text; one of a key that is known takes the place of the one before.

        Raises `AgentsdirError` when the disk refuses.
        """
        here = len(self._texts)
        place = here if key is None else self._places.setdefault(key, here)
        if place == here:
            self._texts.add(text)
        else:
            self._last[place] = self._amended.add(text)

    def pieces(self, begin: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the texts from place `begin` to before `end`, one or more at a time."""
        yield from self.runs((range(begin, len(self) if end is None else end),))

    def runs(self, runs: Iterable[range]) -> Iterator[bytes]:
        """Yield the texts of these places, one or more at a time."""
        amended = sorted(self._last)
        for run in runs:
            begin = run.start
            for place in amended[bisect_left(amended, begin) : bisect_left(amended, run.stop)]:
                yield from self._texts.pieces(begin, place)
                yield self._amended.read(self._last[place])
                begin = place + 1
            yield from self._texts.pieces(begin, run.stop)


def state_at(paths: AgentPaths, until: Cursor = END) -> tuple[dict[str, Any], list[Finding]]:
    """Return state.json as of a point in the log, and the findings of the log up to it.

    Raises what `read_agent` raises.
    """
    reading = read_agent(paths, whole=True, until=until)
    return derived.state_document(reading.state), without_live_tail(paths, reading.findings)


def recorded_event(record: Record) -> StreamEvent | None:
    """Return the stream event of a record; None for a record without one."""
    event, data = None, record.data
    if record.event == "block":
        block = data.get("block")
        if isinstance(block, dict) and isinstance(block.get("conversationId"), str):
            event = blocks.block_complete(str(block.get("id")), block)
    elif record.event == "turn.complete":
        metadata = {"stopReason": data.get("stop_reason"), "usage": data.get("usage")}
        event = _end_of_turn(data, metadata)
    elif record.event == "turn.error":
        error = {"kind": data.get("kind"), "message": data.get("message")}
        event = _end_of_turn(data, {"error": error})
    elif record.event == "turn.aborted":
        event = _end_of_turn(data, {"aborted": data.get("reason")})
    if event is not None:
        event["timestamp"] = record.ts
    return event


def _end_of_turn(data: dict[str, Any], metadata: dict[str, Any]) -> StreamEvent:
    """Return the event of a turn's end, with usage and cost if the log has them."""
    took = {"usage": data.get("usage"), "costUSD": data.get("cost_usd")}
    said = {name: value for name, value in took.items() if value is not None}
    return blocks.metadata_update({"turnId": data.get("turn_id"), **metadata, **said}, MAIN)
