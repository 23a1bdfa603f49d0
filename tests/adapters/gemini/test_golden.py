"""Each era and scenario gives exactly the blocks that were reviewed against its raw file."""

from __future__ import annotations

import orjson
import pytest
from gemini_reading import FIXTURES, expect_golden, read_fixture

from agentsdir.formats.blocks import BLOCKS

SCENARIOS = sorted(
    path.name
    for path in FIXTURES.iterdir()
    if path.is_dir() or not path.name.endswith(("blocks.jsonl", "all.jsonl"))
)


@pytest.mark.feature("B-01", "B-04")
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_blocks_of_a_scenario_are_the_reviewed_ones(name: str):
    """Live blocks stand in `.blocks.jsonl`; all blocks, hidden ones too, in `.all.jsonl`."""
    stem = name if (FIXTURES / name).is_dir() else name.rsplit(".", 1)[0]
    live = b"".join(read_fixture(name, hidden=False).lines())
    everything = b"".join(read_fixture(name).lines("all"))
    expect_golden(f"{stem}.blocks.jsonl", live)
    if everything != live:
        expect_golden(f"{stem}.all.jsonl", everything)


@pytest.mark.feature("B-01")
def test_the_fixtures_hold_all_seven_block_types():
    """No type is left untested."""
    kinds = set()
    for path in FIXTURES.glob("*.blocks.jsonl"):
        kinds |= {orjson.loads(line)["type"] for line in path.read_bytes().split(b"\n") if line}
    assert kinds == set(BLOCKS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_is_settled_and_its_ids_are_unique(name: str):
    """Every record is settled once, and no id stands twice in a conversation of a session."""
    reading = read_fixture(name)
    reading.totals()
    for sink in reading.sinks:
        ids = [(block["conversationId"], block["id"]) for block in sink.blocks("all")]
        assert len(ids) == len(set(ids))
