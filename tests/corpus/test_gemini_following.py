"""Every recorded session, written anew piece by piece and followed, gives what parsing gives."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.gemini.follow import GeminiFollower
from agentsdir.adapters.gemini.reader import GeminiReader
from agentsdir.formats.blocks import Reducer, no_usage
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
PIECES = 8

FOLDERS = sorted(
    path
    for root in (CORPUS, ROOT / "fixtures")
    for path in root.glob("gemini*/**/chats")
    if path.is_dir()
)


def _name(folder: Path) -> str:
    return str(folder.relative_to(CORPUS if CORPUS in folder.parents else ROOT))


def _contents(folder: Path) -> dict[Path, bytes]:
    """Return all transcripts of a folder by relative path, unpacked."""
    found = {}
    for path in sorted(folder.rglob("*.json*")):
        data, name = path.read_bytes(), path.relative_to(folder)
        if path.suffix == ".gz":
            data, name = gzip.decompress(data), name.with_suffix("")
        found[name] = data
    return found


def _states(data: bytes, chance: random.Random) -> list[tuple[str, bytes]]:
    """Return how a file comes to be: bytes to add to it, or to write in place of all."""
    try:
        document = json.loads(data)
        messages = document["messages"]
    except (ValueError, KeyError):
        cuts = [0, *sorted(chance.randint(0, len(data)) for _ in range(PIECES)), len(data)]
        return [("ab", data[one:two]) for one, two in pairwise(cuts)]
    states = []
    for count in range(1, len(messages) + 1):
        grown = {**document, "messages": messages[:count]}
        text = json.dumps(grown, indent=2, ensure_ascii=False).encode(errors="surrogatepass")
        half = chance.randint(0, len(text))
        states += [("wb", text[:half]), ("ab", text[half:])]
    return [*states, ("wb", data)]


def _parsed(folder: Path) -> dict[Path, tuple[dict[str, dict[str, Any]], set[Any], dict[str, Any]]]:
    """Return what parsing says of each session below a folder, by its main file.

    That is its blocks by conversation and id, its findings, and what each conversation spent.
    """
    reader = GeminiReader()
    sources = [Source(str(path), path=path) for path in sorted(folder.rglob("*.json*"))]
    found = {}
    for session in reader.discover(sources):
        sink = ParseSink(hidden=True)
        reader.parse_transcripts(session, sink)
        blocks: dict[str, dict[str, Any]] = {}
        for block in sink.blocks("all"):
            blocks.setdefault(block["conversationId"], {})[block["id"]] = _plain(block)
        findings = {one for one in sink.findings if one not in session.remarks}
        findings.update(sink.drifts.findings())
        spent = {name: one.usage for name, one in sink.conversations.items()}
        found[Path(session.transcripts[0].source.name)] = blocks, findings, spent
    return found


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    """Leave out that a block is not superseded, which a live stream may say."""
    return {name: value for name, value in block.items() if (name, value) != ("superseded", False)}


@pytest.mark.parametrize("recorded", FOLDERS, ids=_name)
def test_every_recording_can_be_followed(recorded: Path, tmp_path: Path) -> None:
    """All its sessions at once, in an order of writes and looks that is drawn from its name."""
    chance = random.Random(_name(recorded))
    folder = tmp_path / "chats"
    contents = _contents(recorded)
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    expected = _parsed(folder)
    shutil.rmtree(folder)

    followers = {main: (GeminiFollower(main, hidden=True), Reducer()) for main in expected}
    waiting = {name: _states(data, chance) for name, data in contents.items()}
    order = [name for name, states in waiting.items() for _ in states]
    chance.shuffle(order)
    for name in order:
        mode, data = waiting[name].pop(0)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open(mode) as file:
            file.write(data)
        for follower, reducer in followers.values():
            for event in follower.poll():
                reducer.apply(event)

    for main, (follower, reducer) in followers.items():
        for event in [*follower.poll(), *follower.end()]:
            reducer.apply(event)
        given = {
            name: {block["id"]: _plain(block) for block in blocks}
            for name, blocks in reducer.conversations.items()
            if blocks
        }
        # A newer client goes on with a document in a log beside it.
        log = main.with_suffix(".jsonl")
        blocks, findings, spent = expected[log if log in expected else main]
        assert given == blocks
        assert set(follower.findings) == findings
        said = reducer.metadata
        assert {name: said.get(name, {}).get("usage", no_usage()) for name in spent} == spent
