"""A session from its log, as stream events or as blocks (decision D21)."""

from __future__ import annotations

from typing import Any

from agentsdir.formats.directory import derived
from agentsdir.formats.directory.agent import read_agent, without_live_tail
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.log import open_log, read_log
from agentsdir.formats.directory.points import END, Point
from agentsdir.formats.directory.records import Record
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent


def replay(
    paths: AgentPaths, report: Callable[[Finding], None], until: Point = END
) -> Iterator[StreamEvent]:
    """Yield the recorded session as stream events, each with its recorded `timestamp`.

    One `block_complete` for each block and one `metadata_update` for each turn that ended. Damage
    in the log, as far as `until`, is reported and passed over; it never ends the replay.
    """
    with open_log(paths.log) as opened:
        for line in read_log(opened, str(paths.log)):
            if until.is_passed_by(line):
                return
            for finding in without_live_tail(paths, line.findings):
                report(finding)
            event = recorded_event(line.record) if line.record is not None else None
            if event is not None:
                yield event
            if until.is_reached_by(line):
                return


def state_at(paths: AgentPaths, until: Point = END) -> tuple[dict[str, Any], list[Finding]]:
    """Return state.json as the log says it was at a point, and what is wrong with the log so far.

    Raises what `read_agent` raises.
    """
    reading = read_agent(paths, whole=True, until=until)
    return derived.state_document(reading.state), without_live_tail(paths, reading.findings)


def recorded_event(record: Record) -> StreamEvent | None:
    """Return the stream event that a record replays as, or None."""
    event, data = None, record.data
    if record.event == "block":
        block = data.get("block")
        if isinstance(block, dict) and isinstance(block.get("conversationId"), str):
            event = stream.block_complete(str(block.get("id")), block)
    elif record.event == "turn.complete":
        metadata = {
            "turnId": data.get("turn_id"),
            "stopReason": data.get("stop_reason"),
            "usage": data.get("usage"),
        }
        event = stream.metadata_update(metadata, MAIN)
    elif record.event == "turn.error":
        error = {"kind": data.get("kind"), "message": data.get("message")}
        event = stream.metadata_update({"turnId": data.get("turn_id"), "error": error}, MAIN)
    elif record.event == "turn.aborted":
        metadata = {"turnId": data.get("turn_id"), "aborted": data.get("reason")}
        event = stream.metadata_update(metadata, MAIN)
    if event is not None:
        event["timestamp"] = record.ts
    return event
