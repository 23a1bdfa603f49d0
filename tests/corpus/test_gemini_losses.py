"""`--view all` keeps whatever was ever written: compared with a walk that knows no fold."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.reading.sink import ParseSink
from agentsdir.formats.reading.source import Source

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
BODIES = ("originalContent", "newContent")
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


def _values(data: bytes) -> list[Any]:
    """Return every JSON value that a file holds, by lines or as a whole; halves are left out."""
    try:
        return [json.loads(data)]
    except ValueError:
        pass
    values = []
    for line in data.split(b"\n"):
        try:
            values.append(json.loads(line))
        except ValueError:
            continue
    return values


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object at any depth."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from _objects(item)


def _strings(value: Any) -> Iterator[str]:
    """Yield every string at any depth that is no key."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _messages(values: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield every version of every message, from rows, lists and documents alike."""
    for value in values:
        rows = [value]
        if isinstance(value, dict):
            rows += value.get("messages") or []
            patch = value.get("$set")
            rows += (patch.get("messages") or []) if isinstance(patch, dict) else []
        for row in rows:
            if isinstance(row, dict) and isinstance(row.get("id"), str) and "type" in row:
                yield row


def _said(message: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield what one version of a message says; of each tuple, all strings must be found."""
    for name in ("content", "displayContent"):
        content = message.get(name)
        for part in content if isinstance(content, list) else [content]:
            if isinstance(part, str):
                yield (part,)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                subject, mark, rest = part["text"].removeprefix("**").partition("**")
                yield (subject, rest.strip()) if part.get("thought") and mark else (part["text"],)
    for thought in message.get("thoughts") or ():
        yield (thought.get("subject") or "", thought.get("description") or "")
    for one in _objects(message):
        response = one.get("functionResponse")
        if isinstance(response, dict):
            yield tuple(_strings(response.get("response")))
        media = one.get("inlineData")
        if isinstance(media, dict):
            yield (str(media.get("data")),)
    for call in message.get("toolCalls") or ():
        if isinstance(call.get("result"), str):
            yield (call["result"],)
        shown = call.get("resultDisplay")
        if isinstance(shown, dict):  # whole files are left out of a diff
            shown = {key: item for key, item in shown.items() if key not in BODIES}
        yield tuple(_strings(shown))
        yield tuple(_strings(call.get("args")))


def _lone(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


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
    """No prompt, answer, thought, result, display, argument or image, of no version of a message.

    A text that grew is part of the longer one. Masks and lone surrogates, which no output of ours
    can hold, are left out.
    """
    found = {text for block in _parse(path).blocks("all") for text in _strings(block)}
    everything = "\0".join(found)
    for message in _messages(_values(_content(path))):
        for said in _said(message):
            for text in said:
                if _lone(text) or text.startswith("<tool_output_masked>"):
                    continue
                assert text in found or text.strip() in everything, (message["id"], text[:200])


@pytest.mark.feature("B-01")
@pytest.mark.parametrize("path", COUNTED, ids=_name)
def test_each_messages_tokens_count_once(path: Path) -> None:
    """The thread's total is the sum over ids of the most that any version of it had."""
    best: dict[str, int] = {}
    for message in _messages(_values(_content(path))):
        tokens = message.get("tokens")
        if isinstance(tokens, dict):
            total = tokens["input"] + tokens["output"] + tokens["thoughts"]
            best[message["id"]] = max(best.get(message["id"], 0), total)
    assert _parse(path).usage()["totalTokens"] == sum(best.values())
