"""Every line of every recording of Claude Code is accounted for by its cause."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

SHARED = Path(__file__).parents[3] / "shared"
SCENARIOS = [
    path
    for folder in ("corpus", "interactive")
    for path in sorted((SHARED / folder).glob("claude-*/*"))
    if path.is_dir()
]
# A row that was put there by hand.
MADE = {"restore_junk": ["row 'unknown-kind': unknown, x 1 (client 1.0.0)"]}

pytestmark = [pytest.mark.feature("B-01")]

if not SCENARIOS:
    pytest.skip("the recordings are not here", allow_module_level=True)


def _parsed(scenario: Path) -> list[ParseSink]:
    reader = ARCHITECTURE.reader
    assert reader is not None
    sources = []
    for path in sorted(scenario.rglob("*")):
        if path.is_file() and path.name.removesuffix(".gz").endswith((".jsonl", ".stdout")):
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            if reader.detect(data[: 64 * 1024], path.name):
                sources.append(Source(str(path), data=data))
    sinks = []
    for files in reader.discover(sources):
        sink = ParseSink(hidden=True)
        reader.parse_transcripts(files, sink)
        sinks.append(sink)
    return sinks


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_no_known_client_writes_an_unknown_kind_and_no_hidden_line_lacks_a_block(
    scenario: Path,
) -> None:
    """Lines add up, each hidden one is a block, and what these clients write is no drift."""
    drifts = []
    for sink in _parsed(scenario):
        tally = sink.tally
        assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
        hidden = {
            (block["source"]["file"], block["source"]["line"])
            for block in sink.blocks("all")
            if block.get("hidden")
        }
        assert len(hidden) >= tally.hidden - tally.hidden_by.get("blank", 0)
        drifts += [finding.message for finding in sink.drifts.findings()]
    assert drifts == MADE.get(scenario.name, [])
