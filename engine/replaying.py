"""A session from its log, as stream events or as blocks (decision D21)."""

from __future__ import annotations

from agentsdir.formats.directory.agent import without_live_tail
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.log import open_log, read_log
from agentsdir.formats.directory.records import Record
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent


def replay(paths: AgentPaths, report: Callable[[Finding], None]) -> Iterator[StreamEvent]:
    """Yield the recorded session as stream events, each with its recorded `timestamp`.

    One `block_complete` for each block and one `metadata_update` for each turn that ended. Damage
    in the log is reported and passed over; it never ends the replay.
    """
    with open_log(paths.log) as opened:
        for line in read_log(opened, str(paths.log)):
            for finding in without_live_tail(paths, line.findings):
                report(finding)
            if line.record is None:
                continue
            event = recorded_event(line.record)
            if event is not None:
                yield event


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
