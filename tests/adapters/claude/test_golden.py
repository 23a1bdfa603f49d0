"""Real transcripts of each kind give exactly the blocks that stand beside them."""

import json
import os
from pathlib import Path

import pytest
from claude_support import FIXTURES, SINGLE, balanced, reader

from agentsdir.formats.blocks import BLOCKS
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

pytestmark = [pytest.mark.feature("B-01"), pytest.mark.feature("B-06")]


def _parse(path: Path) -> ParseSink:
    paths = [path] if path.is_file() else sorted(path.rglob("*.jsonl"))
    sources = [Source(str(found.relative_to(FIXTURES)), path=found) for found in paths]
    (files,) = reader().discover(sources)
    sink = ParseSink(hidden=True)
    reader().parse_transcripts(files, sink)
    return sink


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_real_transcripts_give_the_recorded_blocks(path: Path) -> None:
    """Byte for byte, hidden and superseded blocks included (UPDATE_GOLDEN=1 records anew)."""
    sink = _parse(path)
    given = b"".join(sink.lines("all"))
    expected = path.parent / f"{path.name.removesuffix('.jsonl')}.blocks.jsonl"
    if os.environ.get("UPDATE_GOLDEN"):
        expected.write_bytes(given)
    assert given == expected.read_bytes()
    assert balanced(sink)


def test_the_fixtures_hold_all_seven_block_types() -> None:
    """No type is left untested."""
    kinds = set()
    for path in FIXTURES.glob("*.blocks.jsonl"):
        kinds |= {json.loads(line)["type"] for line in path.read_bytes().split(b"\n") if line}
    assert kinds == set(BLOCKS)


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_ids_are_unique_within_a_session(path: Path) -> None:
    """Two blocks never share an id, whatever their view."""
    ids = [block["id"] for block in _parse(path).blocks("all")]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_fixtures_are_recognised_by_content(path: Path) -> None:
    """Each fixture is claimed without a look at its name."""
    first = path if path.is_file() else min(path.rglob("*.jsonl"))
    assert reader().detect(first.read_bytes()[: 64 * 1024], "")
