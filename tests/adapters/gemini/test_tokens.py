"""Recorded sessions cost what their runs printed; a model was named, so no router was asked."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from gemini_reading import FIXTURES

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.blocks import Usage, add_usage, no_usage
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

READER = ARCHITECTURE.reader
assert READER is not None
COUNTS = ("inputTokens", "cacheReadTokens", "outputTokens", "totalTokens")
RECORDED = sorted({path.parent for path in FIXTURES.glob("*/run-*.stdout")})

# Old clients keep one count of several model calls in one message.
FILE_LACKS = {"era-0.11-four", "era-0.29-four"}
# The file has the run that was killed before it could print its count.
KILLED = {"era-0.38-kill-tool", "era-0.61-kill-child"}


def _printed(folder: Path) -> Counter[str]:
    total: Counter[str] = Counter()
    for path in folder.glob("run-*.stdout"):
        stats = json.loads(path.read_bytes().splitlines()[-1])["stats"]
        sent, cached = stats["input_tokens"], stats.get("cached", 0)
        got = stats["total_tokens"] - sent
        total.update(
            dict(zip(COUNTS, (sent - cached, cached, got, stats["total_tokens"]), strict=True))
        )
    return total


def _parsed(folder: Path) -> Usage:
    """Return the usage of all files of a recording together, as a report has it."""
    paths = sorted((folder / "chats").rglob("*.json*"))
    counted: set[int] = set()
    total = no_usage()
    for session in READER.discover([Source(str(path), path=path) for path in paths]):
        sink = ParseSink(apart=True)
        READER.parse_transcripts(session, sink)
        total = add_usage(total, sink.session_usage().added(counted))
    return total


@pytest.mark.feature("B-01")
@pytest.mark.parametrize("folder", RECORDED, ids=lambda folder: folder.name)
def test_a_recorded_session_costs_what_its_runs_printed(folder: Path):
    """Twins, stubs and imports together: what several files repeat counts once."""
    used, printed = _parsed(folder), _printed(folder)
    if folder.name in FILE_LACKS:
        assert used["exact"] is False
        assert used["totalTokens"] < printed["totalTokens"]
    elif folder.name in KILLED:
        assert used["totalTokens"] > printed["totalTokens"]
    else:
        assert {name: used[name] for name in COUNTS} == dict(printed)


def test_a_run_that_never_said_what_it_spent_is_a_lower_bound():
    """A signal ended it before its last line."""
    for name, exact in (("stream-cut.stdout", False), ("stream-tools.stdout", True)):
        sink = ParseSink()
        (session,) = READER.discover([Source(name, data=(FIXTURES / name).read_bytes())])
        READER.parse_transcripts(session, sink)
        assert sink.usage()["exact"] is exact
