"""Ways to the fixtures and through the reader, shared by all Gemini tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from agentsdir.formats.sink import View

FIXTURES = Path(__file__).parents[3] / "fixtures" / "gemini"

RECORDS = ("header row", "metadata row", "rewind row")


class Reading:
    """Transcripts read by the Gemini reader, each session in a sink of its own."""

    def __init__(self, sources: list[Source], *, hidden: bool = True) -> None:
        reader = ARCHITECTURE.reader
        assert reader is not None
        self.sessions = reader.discover(sources)
        self.sinks = [ParseSink(hidden=hidden) for _ in self.sessions]
        for session, sink in zip(self.sessions, self.sinks, strict=True):
            reader.parse_transcripts(session, sink)

    def lines(self, view: View = "live") -> list[bytes]:
        """Return all blocks as they are printed."""
        return [line for sink in self.sinks for line in sink.lines(view)]

    def blocks(self, view: View = "live", *, records: bool = False) -> list[dict[str, Any]]:
        """Return all blocks, those of headers, metadata and rewinds if `records` are wanted."""
        found = [orjson.loads(line) for line in self.lines(view)]
        return found if records else [block for block in found if not is_record(block)]

    @property
    def findings(self) -> list[str]:
        """The ids of all findings."""
        return [finding.id for sink in self.sinks for finding in sink.findings]

    def totals(self) -> dict[str, int]:
        """Return the ledger of all sessions, having checked that it adds up."""
        sums = dict.fromkeys(("lines", "parsed", "hidden", "folded", "damaged", "recovered"), 0)
        for sink in self.sinks:
            for name, value in sink.tally.as_json().items():
                sums[name] += value
        settled = sums["parsed"] + sums["hidden"] + sums["folded"] + sums["damaged"]
        assert settled == sums["lines"]
        return sums


def is_record(block: dict[str, Any]) -> bool:
    """Tell whether a block is that of a row which only changes what is known of a session."""
    return block.get("subtype") == "log" and block["message"] in RECORDS


def read_bytes(data: bytes, name: str = "made.jsonl", *, hidden: bool = True) -> Reading:
    """Read bytes that stand in no file."""
    return Reading([Source(name, data=data)], hidden=hidden)


def read_fixture(name: str, *, hidden: bool = True) -> Reading:
    """Read a fixture, or all transcripts of a fixture folder, by names relative to the fixtures."""
    path = FIXTURES / name
    files = (
        sorted(path.rglob("session-*.json*")) + sorted(path.rglob("*/*.json*"))
        if path.is_dir()
        else []
    )
    files = list(dict.fromkeys(files)) or [path]
    return Reading(
        [Source(str(file.relative_to(FIXTURES)), data=file.read_bytes()) for file in files],
        hidden=hidden,
    )


def expect_golden(name: str, data: bytes) -> None:
    """Compare with a fixture byte for byte; UPDATE_GOLDEN=1 writes it anew, for review."""
    path = FIXTURES / name
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_bytes(data)
    assert data == path.read_bytes()
