"""Prints what a long timeline costs, as JSON: CPU seconds of each look, and of a floor.

Usage: timeline_costs.py FOLDER. The floor decodes the log line by line. The figures are minima.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from turn_costs import TIME, Ids

from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.services import Services
from agentsdir.engine.timeline import Timeline
from agentsdir.formats.blocks import make_block
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.log import Record, encode_record, line_hash

BLOCKS = 10_000
ROUNDS = 5
LOOKS = 10


def text(block_id: str) -> dict[str, Any]:
    """Return a block of some 300 bytes of text."""
    return make_block("assistant_text", block_id, "main", "s", TIME, None, content="words " * 50)


def long_agent(services: Services) -> AgentPaths:
    """Make an agent whose log has `BLOCKS` blocks."""
    new = NewAgent(cwd="/", login="me", provider="echo")
    paths = services.layout.agent(create_agent(services, new))
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


def least(work: Callable[[], object], times: int = 1) -> float:
    """Return the least CPU seconds of doing something once."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - begun) / times)
    return min(found)


def main() -> None:
    """Measure, and print."""
    disk = Disk("never")
    ids = Ids()
    layout = Layout(Path(sys.argv[1]))
    services = Services(layout, lambda: TIME, lambda _seconds: None, ids, disk, lambda: None)
    paths = long_agent(services)
    costs = {}

    def decode() -> None:
        with paths.log.open("rb") as lines:
            for line in lines:
                orjson.loads(line)

    costs["floor"] = least(decode)
    costs["first look"] = least(lambda: Timeline(paths).select(limit=1))
    costs["first look, limited"] = least(lambda: Timeline(paths, 100).select(limit=1))
    for name, timeline in (("", Timeline(paths)), (", limited", Timeline(paths, 100))):
        timeline.select(limit=1)

        def block_and_look(timeline: Timeline = timeline) -> None:
            with write_agent(paths, disk=disk) as writer:
                writer.append("block", {"turn_id": None, "block": text(ids.agent())}, TIME)
            timeline.select(limit=20)

        costs[f"a block and a look{name}"] = least(block_and_look, LOOKS)
    print(json.dumps(costs))


if __name__ == "__main__":
    main()
