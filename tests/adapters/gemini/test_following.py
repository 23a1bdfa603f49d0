"""Following gives what parsing gives, however the client's writes and our looks fall."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from gemini_reading import FIXTURES
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.adapters.contract import Follower
from agentsdir.adapters.gemini.detection import DOCUMENT, LOG, family_of
from agentsdir.adapters.gemini.follow import SessionFollower
from agentsdir.adapters.gemini.reader import GeminiReader
from agentsdir.formats.reading.reducer import Reducer
from agentsdir.formats.reading.sink import ParseSink
from agentsdir.formats.reading.source import Source

Blocks = dict[str, list[dict[str, Any]]]
_MEMORY = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
SESSION = "11111111-2222-4333-8444-555555555555"
CHILD = "99999999-2222-4333-8444-555555555555"
NAME = "session-2026-01-01T00-00-11111111"
HEADER = {"sessionId": SESSION, "projectHash": "h", "startTime": "2026-01-01T00:00:00.000Z"}
TOKENS = {"input": 10, "output": 2, "cached": 4, "thoughts": 1, "tool": 0, "total": 13}

# A last resort is read as it stands, and a fork is not followed.
SINGLE = sorted(
    path for path in FIXTURES.iterdir()
    if (path.is_dir() and path.name.startswith("subagent-"))
    or (path.suffix in (".json", ".jsonl") and path.name.count(".json") == 1
        and family_of(path.read_bytes()) in (LOG, DOCUMENT))
)  # fmt: skip


def parsed(main: Path) -> Blocks:
    """Return what parsing the session gives, by conversation."""
    reader = GeminiReader()
    sources = [Source(str(path), path=path) for path in sorted(main.parent.rglob("*.json*"))]
    found: Blocks = {}
    for session in reader.discover(sources):
        if session.transcripts[0].source.name == str(main):
            sink = ParseSink(hidden=True)
            reader.parse_transcripts(session, sink)
            for block in sink.blocks("all"):
                found.setdefault(block["conversationId"], []).append(block)
    return found


class Watched:
    """A session that is followed by hand: every event is reduced as it comes."""

    def __init__(self, main: Path, *, hidden: bool = True) -> None:
        self.main = main
        self.follower: Follower = SessionFollower(main, hidden=hidden)
        self.reducer = Reducer()

    def poll(self) -> list[dict[str, Any]]:
        """Look once; return what was told."""
        events = list(self.follower.poll())
        for event in events:
            self.reducer.apply(event)
        return events

    def told(self) -> list[tuple[str, str, list[str]]]:
        """Look once; return what was told in short."""
        return [
            (e["type"].removeprefix("block_"), e.get("blockId", ""), sorted(e.get("updates", ())))
            for e in self.poll()
        ]

    def end(self) -> Blocks:
        """Look for the last time; return the live blocks by conversation."""
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


def same(given: Blocks, expected: Blocks) -> None:
    """Compare live blocks, conversation by conversation; each stands where it was told first."""
    wanted = {name: live(blocks) for name, blocks in expected.items()}
    for found in (given, wanted):
        for name in [name for name, blocks in found.items() if not blocks]:
            del found[name]
        for blocks in found.values():
            blocks.sort(key=lambda block: str(block["id"]))
    assert given == wanted


def laid_out(fixture: Path) -> tuple[Path, dict[Path, bytes]]:
    """Return a session's main file and the contents of all its files, by relative path."""
    if fixture.is_file():
        return Path(fixture.name), {Path(fixture.name): fixture.read_bytes()}
    chats = fixture / "chats"
    files = {path.relative_to(chats): path.read_bytes() for path in sorted(chats.rglob("*.json*"))}
    return min(files, key=lambda path: (len(path.parts), path)), files


every_fixture = pytest.mark.parametrize("fixture", SINGLE, ids=lambda path: path.name)


class Writer:
    """Writes the files of a session piece by piece, as hypothesis wants it."""

    def __init__(self, folder: Path, contents: dict[Path, bytes], data: Any) -> None:
        self.left = dict(contents)
        self._whole = dict(contents)
        self._folder = folder
        self._draw = data.draw

    def step(self, deeds: list[str]) -> None:
        """Do one of some deeds to one of the files."""
        path = self._draw(st.sampled_from(sorted(self.left)), label="file")
        written = self._folder / path
        written.parent.mkdir(parents=True, exist_ok=True)
        kept = written.read_bytes() if written.exists() else b""
        match self._draw(st.sampled_from(deeds)):
            case "grow" if path.suffix == ".json":
                self._rewrite(path)
            case "grow":
                self._append(path, self._draw(st.integers(0, len(self.left[path])), label="bytes"))
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
        for path, data in self._whole.items():
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".json":
                (self._folder / path).write_bytes(data)
            else:
                self._append(path, len(self.left[path]))

    def _rewrite(self, path: Path) -> None:
        """Write a document anew with some of its messages, and maybe not to its end."""
        try:
            document = json.loads(self._whole[path])
        except ValueError:
            text = self._whole[path]
        else:
            count = self._draw(st.integers(0, len(document["messages"])), label="messages")
            document["messages"] = document["messages"][:count]
            text = json.dumps(document, indent=2).encode()
        size = self._draw(st.integers(0, len(text)) | st.just(len(text)), label="bytes")
        (self._folder / path).write_bytes(text[:size])

    def _append(self, path: Path, size: int) -> None:
        with (self._folder / path).open("ab") as file:
            file.write(self.left[path][:size])
        self.left[path] = self.left[path][size:]


def follow_by_chance(fixture: Path, data: Any, deeds: list[str]) -> None:
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
        same(watched.end(), parsed(folder / main))


@every_fixture
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_chunking_of_the_writes_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Logs grow by any number of bytes, documents are rewritten, half at times: same blocks."""
    follow_by_chance(fixture, data, ["grow"])


@every_fixture
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_rewriting_gives_what_parsing_gives(fixture: Path, data: Any) -> None:
    """Files are cut off and written again, or replaced by ones that lack a row: same blocks."""
    follow_by_chance(fixture, data, ["grow", "grow", "grow", "cut", "replace"])
