"""Rows of any shape, in any place: the list goes on, and nested fields are no row's own."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from claude_support import SESSION, lines, row
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters.claude import ARCHITECTURE
from agentsdir.adapters.claude.store import read_list_entry
from agentsdir.adapters.protocol import StoreReader
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.sink import ParseSink

FIXTURES = Path(__file__).parents[3] / "fixtures" / "claude"
ODD: tuple[Any, ...] = (None, True, 0, -1, 1e300, "", "x", "\ud800", [], [None], {}, {"type": 5})


def fixture_rows() -> list[list[dict[str, Any]]]:
    """Return the rows of every whole fixture, a file each."""
    files = []
    for path in sorted(FIXTURES.rglob("*.jsonl")):
        if path.name.endswith(".blocks.jsonl") or "damaged" in path.parts:
            continue
        found = []
        for line in path.read_bytes().split(b"\n"):
            with suppress(ValueError):
                found.append(json.loads(line))
        files.append([value for value in found if isinstance(value, dict)])
    return files


FILES = [rows for rows in fixture_rows() if rows]


def dropped(rows: list[Any], at: int, draw: st.DataObject) -> list[Any]:
    """Drop a key."""
    key = draw.draw(st.sampled_from(sorted(rows[at])))
    return [*rows[:at], {k: v for k, v in rows[at].items() if k != key}, *rows[at + 1 :]]


def retyped(rows: list[Any], at: int, draw: st.DataObject) -> list[Any]:
    """Give a value, or one within it, another type."""
    key = draw.draw(st.sampled_from(sorted(rows[at])))
    odd = draw.draw(st.sampled_from(ODD))
    inner = rows[at][key]
    if isinstance(inner, dict) and inner and draw.draw(st.booleans()):
        odd = {**inner, draw.draw(st.sampled_from(sorted(inner))): odd}
    return [*rows[:at], {**rows[at], key: odd}, *rows[at + 1 :]]


def moved(rows: list[Any], at: int, draw: st.DataObject) -> list[Any]:
    """Move the row to the front."""
    return [rows[at], *rows[:at], *rows[at + 1 :]]


def doubled(rows: list[Any], at: int, draw: st.DataObject) -> list[Any]:
    """Write the row twice."""
    return [*rows[: at + 1], rows[at], *rows[at + 1 :]]


def nested(rows: list[Any], at: int, draw: st.DataObject) -> list[Any]:
    """Put the row into another one."""
    return [{"type": "file-history-snapshot", "messageId": "m", "snapshot": rows[at]}, *rows]


CHANGES = (dropped, retyped, moved, doubled, nested)


@given(data=st.data())
def test_no_shape_of_a_row_stops_a_list_an_adoption_or_a_reading(data: st.DataObject) -> None:
    """Each row of a fixture with a key dropped, retyped, moved, doubled, or nested deeper."""
    reader = ARCHITECTURE.reader
    assert isinstance(reader, StoreReader)
    rows = data.draw(st.sampled_from(FILES))
    at = data.draw(st.integers(0, len(rows) - 1))
    change = data.draw(st.sampled_from([c for c in CHANGES if rows[at] or c is moved]))
    changed = change(rows, at, data)
    with tempfile.TemporaryDirectory() as folder:
        storage = Path(folder) / ".claude"
        main = storage / "projects" / "-w" / f"{SESSION}.jsonl"
        main.parent.mkdir(parents=True)
        main.write_bytes(b"".join(json.dumps(value).encode() + b"\n" for value in changed))
        refused: list[OSError] = []
        assert [listed.id for listed in reader.sessions(storage, refused.append)] in ([], [SESSION])
        assert refused == []
        sink = ParseSink(hidden=True)
        reader.parse_transcripts(reader.files(main), sink)
        tally = sink.tally
        assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
        try:
            assert reader.adoptable(main).id == SESSION
        except AgentsdirError:
            pytest.fail("a session that is named by its file has an id")


@given(data=st.data())
def test_what_stands_nested_in_a_row_of_bookkeeping_says_nothing_of_the_session(
    data: st.DataObject,
) -> None:
    """A text search finds it; the title, the folder, the branch and the beginning stay."""
    talk = [
        row("user", "u1", None, cwd="/mine", message={"role": "user", "content": "my own words"}),
        row("assistant", "u2", "u1", cwd="/mine", gitBranch="mine", message={}),
    ]
    inner = data.draw(st.sampled_from([value for rows in FILES for value in rows]))
    names = [{"type": "custom-title", "customTitle": "other"}, {"type": "ai-title", "aiTitle": "o"}]
    inner = data.draw(st.sampled_from([inner, *names]))
    around = {"type": "file-history-snapshot", "messageId": "m", "snapshot": inner}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{SESSION}.jsonl"
        entries = []
        for rows in (talk, [around, *talk], [*talk, around]):
            path.write_bytes(lines(*rows))
            os.utime(path, (0, 0))
            listed = read_list_entry(path)
            assert listed is not None
            entries.append(listed._replace(size=0))
    assert entries[1:] == entries[:1] * 2


def read_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Return the places of a file that a list reads, as (offset, bytes asked for)."""
    asked: list[tuple[int, int]] = []
    pread = os.pread

    def noted(descriptor: int, length: int, offset: int) -> bytes:
        asked.append((offset, length))
        return pread(descriptor, length, offset)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", noted)
        assert read_list_entry(path) is not None
    return asked


SAID = row("user", "u1", None, message={"role": "user", "content": "words"})
COMMAND = "<command-name>/compact</command-name>\n<command-message>compact</command-message>"
LONG = row("user", "u2", "u1", message={"role": "user", "content": "x" * 70_000})


@pytest.mark.parametrize(
    ("first", "longer"),
    [
        (SAID, False),
        ({**SAID, "cwd": ""}, True),
        ({**SAID, "timestamp": "now"}, True),
        ({**SAID, "message": {"role": "user", "content": COMMAND}}, True),
    ],
    ids=["all is there", "no place", "no time", "a command"],
)
def test_more_than_the_ends_is_read_for_what_they_lack(
    first: dict[str, Any], longer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt, a place and a time in the first 64 KiB are those of the session."""
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(lines({"cwd": "/w", **first}, *[LONG] * 9))
    asked = read_of(path, monkeypatch)
    assert asked[0] == (0, 65536)
    assert ((0, 131072) in asked) is longer
