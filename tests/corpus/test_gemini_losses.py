"""`--view all` keeps whatever was ever written: compared with a walk that knows no fold."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from gemini_oracle import messages, missing, values

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
READER = ARCHITECTURE.reader
assert READER is not None


def _content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _chats() -> list[Path]:
    recorded = [path for path in CORPUS.glob("gemini-*/**/chats/**/*.json*") if path.is_file()]
    own = [
        path
        for path in (ROOT / "fixtures" / "gemini").rglob("*.json*")
        if not path.name.endswith((".blocks.jsonl", ".all.jsonl"))
    ]
    return sorted(recorded) + sorted(own)


def _name(path: Path) -> str:
    return str(path.relative_to(CORPUS if CORPUS in path.parents else ROOT))


def _parse(path: Path) -> ParseSink:
    assert READER is not None
    sink = ParseSink(hidden=True)
    for session in READER.discover([Source(path.name, data=_content(path))]):
        READER.parse_transcripts(session, sink)
    return sink


FILES = _chats()
# Half a document is no JSON, and a fork spells its counts otherwise.
COUNTED = [path for path in FILES if path.name not in ("half-document.json", "qwen.jsonl")]


@pytest.mark.feature("B-03")
@pytest.mark.parametrize("path", FILES, ids=_name)
def test_nothing_that_was_ever_written_is_missing_from_the_whole_view(path: Path) -> None:
    """No prompt, answer, thought, result, display, argument or image of any version."""
    assert missing(_content(path), _parse(path).blocks("all")) == []


@pytest.mark.feature("B-01")
@pytest.mark.parametrize("path", COUNTED, ids=_name)
def test_each_messages_tokens_count_once(path: Path) -> None:
    """The thread's total is the sum over ids of the most that any version of it had."""
    best: dict[str, int] = {}
    for message in messages(values(_content(path))):
        tokens = message.get("tokens")
        if isinstance(tokens, dict):
            total = tokens["input"] + tokens["output"] + tokens["thoughts"]
            best[message["id"]] = max(best.get(message["id"], 0), total)
    assert _parse(path).usage()["totalTokens"] == sum(best.values())
