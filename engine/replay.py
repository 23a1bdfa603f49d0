"""Replaying a session from its log as stream events (decision D21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.sync import load_recorded, recorded_turns
from agentsdir.formats import blocks
from agentsdir.formats.blocks import MAIN, block_key
from agentsdir.formats.errors import Invalid
from agentsdir.formats.findings import Finding
from agentsdir.formats.store import derived
from agentsdir.formats.store.agent import open_agent, read_agent, without_live_tail
from agentsdir.formats.store.events import TURN_ENDS
from agentsdir.formats.store.log import END, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Cursor, Record


def replay(
    paths: AgentPaths,
    report: Callable[[Finding], None],
    until: Cursor = END,
    *,
    streams: bool = False,
    settled: bool = False,
) -> Iterator[StreamEvent]:
    """Yield the recorded session as stream events, each with its recorded `timestamp`.

    One `block_complete` for each block and one `metadata_update` for each turn that ended. Damage
    in the log, as far as `until`, is reported and passed over; it never ends the replay. Raises
    what `open_agent` raises.

    Args:
        streams: for a turn with a recorded stream, yield its events in place of the blocks.
        settled: yield each block once, at its first place, in its last version.
    """
    turns = recorded_turns(paths, until) if streams else {}
    player = _Player(paths, report, turns, _amended(paths, until) if settled else {})
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

    `turns` has the `transcript.synced` entry of each stream, `amended` the last version of each
    block that is yielded only once.
    """

    def __init__(
        self,
        paths: AgentPaths,
        report: Callable[[Finding], None],
        turns: dict[str, dict[str, Any]],
        amended: dict[tuple[str, str], dict[str, Any]],
    ) -> None:
        self._paths = paths
        self._report = report
        self._turns = turns
        self._amended = amended
        self._emitted: set[tuple[str, str]] = set()
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
        if "block" in event and (key := block_key(event["block"])) in self._amended:
            if key in self._emitted:
                return
            self._emitted.add(key)
            event["block"] = self._amended[key]
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


def _amended(paths: AgentPaths, until: Cursor) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the last version of each block that the log has more than once."""
    seen: set[tuple[str, str]] = set()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with open_agent(paths) as opened:
        for line in read_log(opened, str(paths.log)):
            if until.is_passed_by(line):
                break
            block = line.record.data.get("block") if line.record else None
            if isinstance(block, dict):
                key = block_key(block)
                if key in seen:
                    found[key] = block
                seen.add(key)
            if until.is_reached_by(line):
                break
    return found


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
