"""Every Gemini recording parses, whatever its age, damage and spelling."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
READER = ARCHITECTURE.reader
assert READER is not None


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _candidates() -> list[Path]:
    found = [*CORPUS.glob("gemini-*/**/chats/**/*.json*"), *CORPUS.glob("gemini-*/*/run-*.stdout*")]
    return sorted(
        path for path in found if path.is_file() and READER.detect(_head(path), path.name)
    )


def _head(path: Path) -> bytes:
    return _content(path)[: 64 * 1024]


FILES = _candidates() if CORPUS.is_dir() else []
pytestmark = pytest.mark.skipif(not FILES, reason="the corpus of recorded runs is not here")


def _name(path: Path) -> str:
    return str(path.relative_to(CORPUS))


def _parse(sources: list[Source], *, hidden: bool = True) -> ParseSink:
    sink = ParseSink(hidden=hidden)
    for session in READER.discover(sources):
        READER.parse_transcripts(session, sink)
    return sink


def _memory(path: Path, name: str = "in memory") -> Source:
    return Source(name, data=_content(path))


def _without_file(sink: ParseSink) -> list[dict[str, Any]]:
    blocks = list(sink.blocks("all"))
    for block in blocks:
        if block["source"]:
            block["source"]["file"] = ""
        # Where the transcript does not stand on disk, no file stands beside it.
        block.pop("overflow", None)
    return blocks


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_every_line_of_a_recording_is_settled_once(path: Path):
    """Parsed, hidden, folded and damaged lines sum to the lines of the file."""
    tally = _parse([_memory(path)]).tally
    assert tally.lines > 0
    assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
    if path.name.removesuffix(".gz").endswith((".jsonl", ".stdout")):
        data = _content(path)
        if not data.startswith(b"{\n"):
            assert tally.lines == len(data.rstrip(b"\n").split(b"\n"))


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_recording_has_unique_ids_and_the_same_blocks_each_time(path: Path):
    """Two parses are equal, from memory or from disk; ids are unique; live is part of all."""
    sink = _parse([_memory(path)])
    assert list(sink.lines("all")) == list(_parse([_memory(path)]).lines("all"))
    if path.suffix != ".gz":
        on_disk = _parse([Source(str(path), path=path)])
        assert _without_file(on_disk) == _without_file(sink)
        assert on_disk.tally.as_json() == sink.tally.as_json()
    ids = [(block["conversationId"], block["id"]) for block in sink.blocks("all")]
    assert len(ids) == len(set(ids))
    assert [block["id"] for block in sink.blocks("live")] == [
        block["id"] for block in sink.blocks("all") if not block.get("superseded")
    ]
    plain = _parse([_memory(path)], hidden=False)
    assert plain.tally.as_json() == sink.tally.as_json()
    assert [block["id"] for block in plain.blocks("all")] == [
        block["id"] for block in sink.blocks("all") if not block.get("hidden")
    ]


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_every_call_of_a_recording_has_one_block_and_at_most_one_result(path: Path):
    """However often a log restates a call and its result, each is there once."""
    blocks = list(_parse([_memory(path)]).blocks("all"))
    calls = Counter(b["toolUseId"] for b in blocks if b["type"] in ("tool_use", "subagent"))
    results = Counter(b["toolUseId"] for b in blocks if b["type"] == "tool_result")
    assert set(calls.values()) <= {1}
    assert set(results.values()) <= {1}
    assert set(results) <= set(calls)


def test_the_corpus_holds_what_it_did():
    """Nothing in the corpus silently stopped being recognised."""
    transcripts = [path for path in FILES if ".stdout" not in path.name]
    assert (len(transcripts), len(FILES) - len(transcripts)) == (102, 109)
