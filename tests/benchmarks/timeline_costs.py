"""Prints what a long timeline costs, as JSON: pairs of CPU seconds and a floor's.

Usage: timeline_costs.py FOLDER. The floor decodes the log line by line. The figures are minima
over interleaved rounds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import orjson
from turn_costs import TIME, Ids, Root, least

from agentsdir.engine.timeline import Timeline
from agentsdir.formats.blocks import make_block
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.log import Record, encode_record, line_hash

BLOCKS = 10_000
LIMIT = 100
"""Blocks that a limited timeline holds."""


def text(block_id: str) -> dict[str, Any]:
    """Return a block of some 300 bytes of text."""
    return make_block("assistant_text", block_id, "main", "s", TIME, None, content="words " * 50)


def long_agent(root: Root) -> AgentPaths:
    """Make an agent whose log has `BLOCKS` blocks."""
    paths = root.new()
    state = read_agent(paths).state
    seq, before = state.position.last_seq, state.position.last_hash
    with paths.log.open("ab") as log:
        for number in range(1, BLOCKS + 1):
            data = {"turn_id": None, "block": text(f"b{number}")}
            record = Record(seq + number, TIME, "block", state.session.id, data, before)
            line = encode_record(record)
            before = line_hash(line)
            log.write(line)
    return paths


def main() -> None:
    """Measure, and print."""
    paths = long_agent(Root(Path(sys.argv[1])))
    disk, ids = Disk("never"), Ids()

    def decode() -> None:
        with paths.log.open("rb") as lines:
            for line in lines:
                orjson.loads(line)

    found = {}
    for name, limit in (("look", None), ("limited look", LIMIT)):
        timeline = Timeline(paths, limit)

        def first(limit: int | None = limit) -> None:
            Timeline(paths, limit).select(limit=1)

        def again(timeline: Timeline = timeline) -> None:
            with write_agent(paths, disk=disk) as writer:
                writer.append("block", {"turn_id": None, "block": text(ids.agent())}, TIME)
            timeline.select(limit=20)

        found[f"first {name}"] = least(first, decode)
        timeline.select(limit=1)
        found[f"block and {name}"] = least(again, decode)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
