"""Recorded full-screen sessions, and what their logs say was typed.

A recording is a folder ``<client>-<version>/tty_<scenario>``: the home folder as the client left it
(``tree/home``), and ``keys.jsonl``, the log of all keys with what each text `means`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT.parent / "shared" / "interactive"
FIXTURES = ROOT / "fixtures" / "interactive"

# The log keeps the length of a long paste in its place.
_COUNTED = re.compile(r"\[(\d+) characters\]")


class Typed(NamedTuple):
    """One text that a person sent by Enter, or gave on the command line.

    `means` is ``prompt``, ``command``, ``bash``, ``feedback`` (beside an answer in a dialog) or
    ``lost`` (typed, never sent). `rewound` is None where the client itself dropped or brought back
    something there. `size` is the number of characters where only that was logged, else 0.
    """

    text: str
    means: str
    at: float
    queued: bool = False
    rewound: bool | None = False
    pasted: bool = False
    size: int = 0

    def is_in(self, text: str) -> bool:
        """Tell whether a block's text is this one."""
        if self.size:
            return len(text.strip()) == self.size
        if self.pasted:  # clients put a paste on lines of its own
            return text.split() == self.text.split()
        return text.strip() == self.text.strip()


class Recording:
    """One recording."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"{folder.parent.name}/{folder.name.removeprefix('tty_')}"
        self.is_claude = folder.parent.name.startswith("claude-")
        self.home = folder / "tree" / "home"
        self.store = self.home / (".claude" if self.is_claude else ".gemini")

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """The log of the keys."""
        lines = (self.folder / "keys.jsonl").read_text().split("\n")
        return [json.loads(line) for line in lines if line]

    @cached_property
    def typed(self) -> list[Typed]:
        """What was typed, in order."""
        sent = list(_sent(self.log))
        return sent if self.is_claude else list(_joined(sent, self.log))

    def meant(self, *means: str) -> list[Typed]:
        """Return what was typed with these meanings."""
        return [one for one in self.typed if one.means in means]

    def transcripts(self) -> list[Path]:
        """Return the files in which the client keeps sessions, those of subagents too."""
        inner = "projects/*/**/*.jsonl" if self.is_claude else "tmp/*/chats/**/*.json*"
        return sorted(self.store.glob(inner))

    @cached_property
    def stops(self) -> list[tuple[float, dict[Path, int]]]:
        """When the session stood still, and how many lines each transcript had then."""
        return [
            (
                _seconds(entry["t"]),
                {self.home.parent / name: count for name, count in entry["lines"].items()},
            )
            for entry in self.log
            if entry["do"] == "quiet"
        ]


def fixtures() -> list[Recording]:
    """Return the recordings that the repository has itself, with other paths in them."""
    return [Recording(folder) for folder in sorted(FIXTURES.glob("*/tty_*"))]


def recordings() -> list[Recording]:
    """Return all recordings beside the repository; none in a clone by itself."""
    return [Recording(folder) for folder in sorted(RECORDINGS.glob("*/tty_*"))]


def _sent(log: list[dict[str, Any]]) -> Iterator[Typed]:
    """Put together what was typed and pasted up to an Enter; Tab and Up only fill the box."""
    pieces: list[dict[str, Any]] = []
    for entry in log:
        if entry["do"] == "start":
            for word in entry["argv"]:
                if "[[plan:" in word:
                    yield Typed(word, "prompt", _seconds(entry["t"]))
        elif entry["do"] in ("type", "paste"):
            pieces.append(entry)
        elif entry["do"] == "key" and entry["key"] == "Enter":
            if any(piece["means"] for piece in pieces):
                yield _text(pieces, _seconds(entry["t"]))
            pieces = []


def _text(pieces: list[dict[str, Any]], at: float) -> Typed:
    first = next(piece for piece in pieces if piece["means"])
    whole = next((piece["whole"] for piece in pieces if piece.get("whole")), None)
    text = "".join(piece["text"] for piece in pieces) if whole is None else whole
    counted = _COUNTED.fullmatch(text)
    return Typed(
        text,
        first["means"],
        at,
        queued=any(piece.get("queued") for piece in pieces),
        rewound=first.get("rewound", False),
        pasted=any(piece["do"] == "paste" for piece in pieces),
        size=int(counted[1]) if counted else 0,
    )


def _joined(sent: list[Typed], log: list[dict[str, Any]]) -> Iterator[Typed]:
    """Join prompts that waited together, as Gemini CLI does, with an empty line between."""
    stops = [_seconds(entry["t"]) for entry in log if entry["do"] == "quiet"]
    waiting: Typed | None = None
    for one in sent:
        if waiting is not None:
            joins = one.queued and one.means == "prompt"
            if joins and not any(waiting.at < stop < one.at for stop in stops):
                waiting = waiting._replace(text=f"{waiting.text}\n\n{one.text}", at=one.at)
                continue
            yield waiting
        waiting = one if one.queued and one.means == "prompt" else None
        if waiting is None:
            yield one
    if waiting is not None:
        yield waiting


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def seconds_of(timestamp: str | None) -> float:
    """Return the time of a block; raises for one that has none."""
    assert timestamp is not None
    return _seconds(timestamp)
