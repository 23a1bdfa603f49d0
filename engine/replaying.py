"""A session from its log, as stream events or as blocks (decision D21)."""

from __future__ import annotations

from typing import Any

from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.log import open_log, read_log
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.stream import StreamEvent


def replay(paths: AgentPaths, report: Callable[[Finding], None]) -> Iterator[StreamEvent]:
    """Yield the recorded session as stream events, each with its recorded `timestamp`.

    One `block_complete` for each block and one `metadata_update` for each completed turn. Damage
    in the log is reported and passed over; it never ends the replay.
    """
    with open_log(paths.log) as opened:
        for line in read_log(opened, str(paths.log)):
            for finding in line.findings:
                report(finding)
            if line.record is None:
                continue
            event = _event(line.record.event, line.record.data)
            if event is not None:
                event["timestamp"] = line.record.ts
                yield event


def _event(kind: str, data: dict[str, Any]) -> StreamEvent | None:
    if kind == "block":
        block = data.get("block")
        if isinstance(block, dict) and isinstance(block.get("conversationId"), str):
            return stream.block_complete(str(block.get("id")), block)
    elif kind == "turn.complete":
        metadata = {
            "turnId": data.get("turn_id"),
            "stopReason": data.get("stop_reason"),
            "usage": data.get("usage"),
        }
        return stream.metadata_update(metadata, MAIN)
    return None
