"""Every row of every fixture, spoiled: no reader raises, and every line is accounted for."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gemini_reading import FIXTURES, Reading

from agentsdir.adapters.gemini.discover import peek, read_ends
from agentsdir.adapters.gemini.store import read_list_entry
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = sorted(
    path
    for path in FIXTURES.rglob("*.json*")
    if path.is_file() and not path.name.endswith((".blocks.jsonl", ".all.jsonl"))
)
# In the place of a value: every type that JSON has.
OTHERS: tuple[Any, ...] = (None, True, 7, "text", [], [1], {}, {"id": 1})


def _rows(data: bytes) -> tuple[list[Any], Any]:
    """Return the rows of a file, and what makes a file of rows again."""
    try:
        whole = json.loads(data)
    except ValueError:
        rows = []
        for line in data.split(b"\n"):
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return rows, lambda made: b"".join(json.dumps(row).encode() + b"\n" for row in made)
    if isinstance(whole, list):
        return whole, lambda made: json.dumps(made, indent=2).encode()
    name = next((key for key, value in whole.items() if isinstance(value, list)), "messages")
    listed = whole.get(name, [])
    return listed, lambda made: json.dumps({**whole, name: made}, indent=2).encode()


def _spoiled(row: Any) -> Iterator[Any]:
    """Yield a row with each key dropped, of each other type, moved to the front, and deeper."""
    if not isinstance(row, dict):
        yield from OTHERS
        return
    for number, key in enumerate(row):
        rest = {name: value for name, value in row.items() if name != key}
        yield rest
        yield {**row, key: OTHERS[number % len(OTHERS)]}
        yield {**row, key: OTHERS[(number + 3) % len(OTHERS)]}
        yield {key: row[key], **rest}
        yield {**rest, "deeper": {key: row[key]}}
    yield {"deeper": row}
    yield [row]


def _made(rows: list[Any]) -> Iterator[list[Any]]:
    for at, row in enumerate(rows[:6]):
        yield [*rows[: at + 1], copy.deepcopy(row), *rows[at + 1 :]]
        yield [row, *rows[:at], *rows[at + 1 :]]
        for spoiled in _spoiled(row):
            yield [*rows[:at], spoiled, *rows[at + 1 :]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_no_shape_of_a_row_raises_or_goes_uncounted(path: Path, tmp_path: Path) -> None:
    """Detection, heads, cards and blocks; ids stay unique, and lines sum up."""
    data = path.read_bytes()
    rows, write = _rows(data)
    file = tmp_path / "session-made.jsonl"
    for made in _made(rows):
        spoiled = write(made)
        source = Source("session-made.jsonl", data=spoiled)
        head = peek(read_ends(source))
        file.write_bytes(spoiled)
        listed = read_list_entry(file)
        assert (listed is None) == (head.family is None)
        if listed is not None and head.talks:
            assert listed.head.session_id
        reading = Reading([source])
        reading.totals()
        for sink in reading.sinks:
            ids = [(block["conversationId"], block["id"]) for block in sink.blocks("all")]
            assert len(ids) == len(set(ids))
