"""What the tests of following share: a session followed by hand, and files written by chance."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from agentsdir.adapters.protocol import Follower
from agentsdir.formats.blocks import Reducer

Blocks = dict[str, list[dict[str, Any]]]


class Watching:
    """A session that is followed by hand: every event is reduced as it comes."""

    def __init__(self, main: Path, follower: Follower) -> None:
        self.main = main
        self.follower = follower
        self.reducer = Reducer()

    def poll(self) -> list[dict[str, Any]]:
        """Look once; return the events."""
        events = list(self.follower.poll())
        for event in events:
            self.reducer.apply(event)
        return events

    def end(self) -> Blocks:
        """Look for the last time; return the live blocks by conversation.

        What vanished is superseded, and cannot be told from what a rewind dropped.
        """
        self.poll()
        for event in self.follower.end():
            self.reducer.apply(event)
        return {name: live(blocks) for name, blocks in self.reducer.conversations.items()}

    def texts(self) -> list[str]:
        """Return what stands in the main conversation now."""
        said = ("user_message", "assistant_text")
        blocks = live(self.reducer.blocks())
        return [block["content"] for block in blocks if block["type"] in said]


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
                self.grow(path)
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

    def grow(self, path: Path) -> None:
        """Write some more of a file."""
        self._append(path, self._draw(st.integers(0, len(self.left[path])), label="bytes"))

    def rest(self) -> None:
        """Write what is left."""
        for path in self.left:
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            self._append(path, len(self.left[path]))

    def _append(self, path: Path, size: int) -> None:
        with (self._folder / path).open("ab") as file:
            file.write(self.left[path][:size])
        self.left[path] = self.left[path][size:]


def read_so_far() -> int:
    """Return how many bytes this process has read, or skip where the system does not count."""
    counts = Path("/proc/self/io")
    if not counts.exists():
        pytest.skip("the system does not count what a process reads")
    return int(counts.read_text().split("rchar:")[1].split()[0])
