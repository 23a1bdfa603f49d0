"""No recording of a known client has a row, a part or a status that the reader does not know."""

from __future__ import annotations

from pathlib import Path

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import HEAD, Source

FIXTURES = Path(__file__).parents[2] / "fixtures"
SHARED = Path(__file__).parents[3] / "shared"
READER = ARCHITECTURE.reader
assert READER is not None
# What files hold that were written by hand for it.
_MADE = {
    "junk2.jsonl": ["message 'unknown-kind'"],
    "restore_junk2": ["message 'unknown-kind'"],
    "prompts.jsonl": ["message 'brand-new'", "prompt part 'somethingNew'", "row 'without type'"],
    "twice-in-a-list.jsonl": ["message 'NoneType'"],
}


def _files() -> list[Path]:
    found = []
    for path in (*SHARED.glob("*/gemini-*/**/*"), *FIXTURES.glob("*gemini*/**/*")):
        if path.is_file() and path.suffix in (".json", ".jsonl", ".stdout"):
            with path.open("rb") as stream:
                if READER.detect(stream.read(HEAD), path.name):
                    found.append(path)
    return sorted(found)


def test_recordings_of_known_clients_hold_no_unknown_kind_and_every_line_is_accounted_for() -> None:
    """Logs, documents, prompt logs, checkpoints and printed runs of all versions."""
    unknown: dict[str, list[str]] = {}
    unsettled = []
    for path in _files():
        sink = ParseSink(hidden=True)
        for session in READER.discover([Source(str(path), path=path)]):
            READER.parse_transcripts(session, sink)
        tally = sink.tally
        if tally.parsed + tally.hidden + tally.folded + tally.damaged != tally.lines:
            unsettled.append(path)
        made = [kind for name, kinds in _MADE.items() if name in path.parts for kind in kinds]
        for drift in sink.drifts.findings():
            if drift.message.partition(":")[0] not in made:
                unknown.setdefault(drift.message, []).append(str(path))
    assert unknown == {}
    assert unsettled == []
