"""Every recorded session, written anew piece by piece and followed, gives what parsing gives."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.protocol import StoreReader
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.sink import ParseSink

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude" / "recorded"
PIECES = 12


def _projects() -> list[Path]:
    found = [*CORPUS.glob("claude-*/*/tree/**/projects/*"), *FIXTURES.glob("*/*")]
    return sorted(path for path in found if path.is_dir())


def _reader() -> StoreReader:
    assert isinstance(ARCHITECTURE.reader, StoreReader)
    return ARCHITECTURE.reader


def _contents(project: Path) -> dict[Path, bytes]:
    """Return all files of a recorded project folder by relative path, unpacked."""
    found = {}
    for path in sorted(project.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            name = path.relative_to(project)
            if path.suffix == ".gz":
                data, name = gzip.decompress(data), name.with_suffix("")
            found[name] = data
    return found


def _parsed(main: Path) -> dict[str, list[Any]]:
    sink = ParseSink(hidden=True)
    _reader().parse_transcripts(_reader().files(main), sink)
    found: dict[str, list[Any]] = {}
    for block in sink.blocks("all"):
        found.setdefault(block["conversationId"], []).append(block)
    return found


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    """Leave out that a block is not superseded, which a live stream may say."""
    return {name: value for name, value in block.items() if (name, value) != ("superseded", False)}


@pytest.mark.parametrize("project", _projects(), ids=lambda path: "-".join(path.parts[-6:]))
def test_every_recording_can_be_followed(project: Path, tmp_path: Path) -> None:
    """All its sessions at once, in an order of writes and looks that is drawn from its name."""
    folder = tmp_path / project.name
    contents = _contents(project)
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    ids = [str(path) for path in _reader().transcripts(folder, _refuse) if path.parent == folder]
    mains = [Path(path) for path in ids if not Path(path).name.startswith("agent-")]
    expected = {main: _parsed(main) for main in mains}
    shutil.rmtree(folder)

    chance = random.Random(project.name)
    followers = {main: (_reader().follow(main, hidden=True), Reducer()) for main in mains}
    pieces = [
        (name, begin, end)
        for name, data in contents.items()
        for cuts in [sorted(chance.randint(0, len(data)) for _ in range(PIECES))]
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)
    ]
    order = [name for name, _, _ in pieces]
    chance.shuffle(order)
    waiting: dict[Path, list[tuple[int, int]]] = {}
    for name, begin, end in pieces:
        waiting.setdefault(name, []).append((begin, end))
    for name in order:
        begin, end = waiting[name].pop(0)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("ab") as file:
            file.write(contents[name][begin:end])
        for follower, reducer in followers.values():
            for event in follower.poll():
                reducer.apply(event)

    for main, (follower, reducer) in followers.items():
        for event in [*follower.poll(), *follower.end()]:
            reducer.apply(event)
        given = {
            name: [_plain(block) for block in blocks]
            for name, blocks in reducer.conversations.items()
            if blocks
        }
        assert given == expected[main]


def _refuse(error: OSError) -> None:
    raise error
