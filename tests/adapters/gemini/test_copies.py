"""Copies of a subagent's file beside it: each row and each message counts once."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from gemini_client import Gemini, Writer
from gemini_reading import FIXTURES, Reading
from hypothesis import given, settings
from hypothesis import strategies as st
from watching import same

from agentsdir.formats.source import Source

CHATS = FIXTURES / "subagent-0.61" / "chats"
MAIN = next(CHATS.glob("session-*.jsonl")).relative_to(CHATS)
OWN = next(CHATS.rglob("*/*.jsonl")).relative_to(CHATS)
CHILD = OWN.stem
ROWS = (CHATS / OWN).read_bytes().splitlines(keepends=True)
SAID = b'{"id":"later","timestamp":"2026-11-27T21:32:00.000Z","type":"user","content":"And now?"}\n'

# What a copy may hold: the whole file, its beginning, more than it, another end.
COPIES = {
    "whole": ROWS,
    "beginning": ROWS[:6],
    "header": ROWS[:1],
    "longer": [*ROWS, SAID],
    "other": [*ROWS[:6], SAID],
}


def read(*copies: list[bytes], hidden: bool = True) -> Reading:
    """Read the session with copies of the subagent's file, which stand before and behind it."""
    files = {MAIN: (CHATS / MAIN).read_bytes(), OWN: b"".join(ROWS)}
    for number, rows in enumerate(copies):
        name = f"{CHILD}-copy.jsonl" if number == 0 else f"z{number}-copy.jsonl"
        files[OWN.with_name(name)] = b"".join(rows)
    sources = [Source(str(name), data=data) for name, data in sorted(files.items())]
    return Reading(sources, hidden=hidden)


def told(reading: Reading) -> dict[str, list[Any]]:
    """Return the blocks by conversation, without the places that they came from."""
    found: dict[str, list[Any]] = {}
    for block in reading.blocks("all"):
        block.pop("source", None)
        found.setdefault(block["conversationId"], []).append(block)
    return found


def tokens(reading: Reading) -> dict[str, Any]:
    """Return what each conversation spent."""
    (sink,) = reading.sinks
    return {name: one.usage for name, one in sink.conversations.items()}


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("name", ["whole", "beginning", "header"])
def test_what_a_copy_repeats_counts_once(name: str, *, hidden: bool) -> None:
    """Its rows are folded as those of a copy, and blocks, tokens and links are as without it."""
    alone, beside = read(hidden=hidden), read(COPIES[name], COPIES[name], hidden=hidden)
    assert told(beside) == told(alone)
    assert tokens(beside) == tokens(alone)
    assert beside.findings == alone.findings == []
    (sink,) = beside.sinks
    messages = sum(row.startswith(b'{"id"') for row in COPIES[name])
    assert sink.tally.folded_by.get("copy", 0) == 2 * messages
    assert beside.totals()["parsed"] == alone.totals()["parsed"]


def test_a_copy_with_more_rows_is_the_thread() -> None:
    """The file that is its beginning is the copy then."""
    reading, alone = read(COPIES["longer"]), read()
    assert {*told(reading)} == {"main", CHILD}
    assert [block["id"] for block in told(reading)[CHILD] if block not in told(alone)[CHILD]] == [
        "later:p", f"{CHILD}:end"
    ]  # fmt: skip
    assert tokens(reading)["main"] == tokens(alone)["main"]
    assert tokens(reading)[CHILD] == {**tokens(alone)[CHILD], "exact": False}  # no answer to it
    (sink,) = reading.sinks
    assert sink.tally.folded_by["copy"] == sum(row.startswith(b'{"id"') for row in ROWS)


def test_what_only_a_copy_says_is_a_thread_with_a_number() -> None:
    """Nothing is lost, and of the rest nothing is reported again."""
    reading, alone = read(COPIES["other"], COPIES["other"]), read()
    found = told(reading)
    assert {name: found[name] for name in ("main", CHILD)} == told(alone)
    bounds = [f"{CHILD}~2:start", "later:p", f"{CHILD}~2:end"]
    assert [block["id"] for block in found.pop(f"{CHILD}~2")] == bounds
    assert {*found} == {"main", CHILD}
    (sink,) = reading.sinks
    assert sink.conversations[f"{CHILD}~2"].link == sink.conversations[CHILD].link
    assert sink.conversations[f"{CHILD}~2"].usage["totalTokens"] == 0
    reading.totals()


def test_a_richer_version_in_a_shorter_copy_is_not_lost() -> None:
    """Rows alone do not tell which of two files says more of a message."""
    richer = [*ROWS[:3], ROWS[3].replace(b"Sub: reading.", b"Sub: reading it all.")]
    found = told(read(richer))[f"{CHILD}~2"]
    assert "Sub: reading it all." in [block.get("content") for block in found]
    assert tokens(read(richer))[f"{CHILD}~2"]["totalTokens"] == 0


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data())
def test_copies_that_grow_are_followed_as_they_are_parsed(data: Any) -> None:
    """Whichever of them is the longest, and whenever they are looked at."""
    names = data.draw(st.lists(st.sampled_from(sorted(COPIES)), min_size=1, max_size=3))
    contents = {MAIN: (CHATS / MAIN).read_bytes(), OWN: b"".join(ROWS)}
    for number, name in enumerate(names):
        contents[OWN.with_name(f"{'az'[number % 2]}{number}.jsonl")] = b"".join(COPIES[name])
    with tempfile.TemporaryDirectory() as folder:
        main = Path(folder) / MAIN
        watched, writer = Gemini.watch(main), Writer(Path(folder), contents, data)
        for _ in range(data.draw(st.integers(1, 10), label="steps")):
            writer.step(["grow", "grow", "cut"])
            if data.draw(st.booleans(), label="look"):
                watched.poll()
        writer.rest()
        same(watched.end(), Gemini.parsed(main), ordered=False)


def test_a_copy_that_appears_while_a_session_is_followed_tells_nothing(tmp_path: Path) -> None:
    """Also when what it was copied from goes on; tokens are as without it."""
    shutil.copytree(CHATS, tmp_path, dirs_exist_ok=True)
    own = tmp_path / OWN
    own.write_bytes(b"".join(ROWS[:6]))
    watched = Gemini.watch(tmp_path / MAIN)
    watched.poll()
    shutil.copy(own, own.with_name("a-copy.jsonl"))
    assert watched.poll() == []
    own.write_bytes(b"".join(ROWS))
    watched.poll()
    assert {*watched.reducer.conversations} == {"main", CHILD}
    same(watched.end(), Gemini.parsed(watched.main), ordered=False)
    used = {name: said.get("usage") for name, said in watched.reducer.metadata.items()}
    assert used == {**tokens(read())}
