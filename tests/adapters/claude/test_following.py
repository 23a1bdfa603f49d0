"""Following gives what parsing gives, however the client's writes and our looks fall."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from claude_support import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.contract import Follower, StoreReader
from agentsdir.formats.reading.reducer import Reducer
from agentsdir.formats.reading.sink import ParseSink

Blocks = dict[str, list[dict[str, Any]]]
OTHER = "00000002-0000-4000-8000-000000000002"
_PATHS = sorted(
    path
    for path in FIXTURES.iterdir()
    if path.is_dir() or (path.suffix == ".jsonl" and not path.name.endswith(".blocks.jsonl"))
)
_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None


def reader() -> StoreReader:
    """Return the reader under test."""
    assert isinstance(ARCHITECTURE.reader, StoreReader)
    return ARCHITECTURE.reader


def parsed(main: Path) -> Blocks:
    """Return what parsing the session gives, by conversation."""
    sink = ParseSink(hidden=True)
    reader().parse_transcripts(reader().files(main), sink)
    found: Blocks = {}
    for block in sink.blocks("all"):
        found.setdefault(block["conversationId"], []).append(block)
    return found


class Watched:
    """A session that is followed by hand: every event is reduced as it comes."""

    def __init__(self, main: Path, *, hidden: bool = True) -> None:
        self.main = main
        self.follower: Follower = reader().follow(main, hidden=hidden)
        self.reducer = Reducer()

    def poll(self) -> list[dict[str, Any]]:
        """Look once; return what was told."""
        events = list(self.follower.poll())
        for event in events:
            self.reducer.apply(event)
        return events

    def end(self) -> Blocks:
        """Look for the last time; return the blocks by conversation, those that vanished left out.

        What was superseded by a rewind is left out too, as it cannot be told from those.
        """
        self.poll()
        for event in self.follower.end():
            self.reducer.apply(event)
        return {name: live(blocks) for name, blocks in self.reducer.conversations.items()}

    def texts(self) -> list[str]:
        """Return what stands in the main conversation now."""
        return [block["content"] for block in live(self.reducer.blocks()) if "content" in block]


def live(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return blocks that are not superseded, and do not say so."""
    return [
        {name: value for name, value in block.items() if name != "superseded"}
        for block in blocks
        if not block.get("superseded")
    ]


def same(given: Blocks, expected: Blocks, *, ordered: bool = True) -> None:
    """Compare live blocks, conversation by conversation."""
    wanted = {name: live(blocks) for name, blocks in expected.items()}
    for found in (given, wanted):
        for name in [name for name, blocks in found.items() if not blocks]:
            del found[name]
        if not ordered:
            for blocks in found.values():
                blocks.sort(key=lambda block: str(block["id"]))
    assert given == wanted


def laid_out(fixture: Path) -> tuple[Path, dict[Path, bytes]]:
    """Return a session's main file and the contents of all its files, by relative path."""
    if fixture.is_file():
        return Path(fixture.name), {Path(fixture.name): fixture.read_bytes()}
    files = {
        path.relative_to(fixture): path.read_bytes()
        for path in sorted(fixture.rglob("*"))
        if path.is_file()
        and path.name.endswith((".jsonl", ".meta.json"))
        and not path.name.endswith(".blocks.jsonl")
    }
    main = next(
        path for path in files if len(path.parts) == 1 and not path.name.startswith("agent-")
    )
    return main, files


every_fixture = pytest.mark.parametrize("fixture", _PATHS, ids=lambda path: path.name)


class Writer:
    """Writes the files of a session piece by piece, as hypothesis wants it."""

    def __init__(self, folder: Path, contents: dict[Path, bytes], data: Any) -> None:
        self.left = dict(contents)
        self._folder = folder
        self._draw = data.draw

    def step(self, deeds: list[str]) -> None:
        """Do one of some deeds to one of the files."""
        path = self._draw(st.sampled_from(sorted(self.left)), label="file")
        written = self._folder / path
        written.parent.mkdir(parents=True, exist_ok=True)
        kept = written.read_bytes() if written.exists() else b""
        match self._draw(st.sampled_from(deeds)):
            case "grow":
                size = self._draw(st.integers(0, len(self.left[path])), label="bytes")
                self._append(path, size)
            case "cut":
                size = self._draw(st.integers(0, len(kept)), label="cut to")
                self.left[path] = kept[size:] + self.left[path]
                if kept:
                    os.truncate(written, size)
            case "replace":
                rows = kept.splitlines(keepends=True)
                if rows:
                    del rows[self._draw(st.integers(0, len(rows) - 1), label="row")]
                beside = written.with_name("new")
                beside.write_bytes(b"".join(rows))
                beside.replace(written)

    def rest(self) -> None:
        """Write what is left."""
        for path in self.left:
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            self._append(path, len(self.left[path]))

    def _append(self, path: Path, size: int) -> None:
        with (self._folder / path).open("ab") as file:
            file.write(self.left[path][:size])
        self.left[path] = self.left[path][size:]


def follow_by_chance(fixture: Path, data: Any, deeds: list[str], *, ordered: bool) -> None:
    """Let the files change and be looked at by chance; compare with parsing at the end."""
    main, contents = laid_out(fixture)
    with tempfile.TemporaryDirectory(dir=_MEMORY) as name:
        folder = Path(name)
        watched, writer = Watched(folder / main), Writer(folder, contents, data)
        for _ in range(data.draw(st.integers(1, 12), label="steps")):
            writer.step(deeds)
            if data.draw(st.booleans(), label="look"):
                watched.poll()
        writer.rest()
        same(watched.end(), parsed(folder / main), ordered=ordered)


@every_fixture
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_chunking_of_the_writes_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Files grow in turns, by any number of bytes: same blocks, same order."""
    follow_by_chance(fixture, data, ["grow"], ordered=True)


@every_fixture
@settings(max_examples=15, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_rewriting_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Files are cut off and written again, or replaced by ones that lack a row: same blocks."""
    follow_by_chance(fixture, data, ["grow", "grow", "grow", "cut", "replace"], ordered=False)
