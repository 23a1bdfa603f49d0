"""Places in JSON texts: every value is found at its byte, and silent losses are seen."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.schemas.places import find, flaws
from agentsdir.schemas.violations import pointer_of

KEYS = st.one_of(st.text(max_size=6), st.sampled_from(["", "/", "~1", 'a"b', "\\", "é", "0"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), KEYS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


def inside(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str, Any]]:
    """Return every value inside `value` with its JSON pointer."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    here = [(pointer_of(path), value)]
    return here + [pair for key, item in items for pair in inside(item, (*path, key))]


@given(VALUES, st.booleans())
def test_every_value_is_found_where_it_stands(value: Any, indented: bool) -> None:
    """Reading on from the byte that `find` gives yields the value at the pointer."""
    text = json.dumps(value, ensure_ascii=False, indent=2 if indented else None)
    data = text.encode(errors="surrogatepass")

    for pointer, wanted in inside(value):
        rest = data[find(data, pointer) :].decode(errors="surrogatepass")
        found, _ = json.JSONDecoder().raw_decode(rest)
        assert found == wanted
    assert list(flaws(data)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":1,"a":2}', [("/a", 11, "duplicate-key")]),
        ('{"a":{"b":1},"b":{"b":1,"\\u0062":2}}', [("/b/b", 33, "duplicate-key")]),
        ("[9007199254740991,-9007199254740992]", [("/1", 18, "big-integer")]),
        ('{"a~/b":[[],18446744073709551616]}', [("/a~0~1b/1", 12, "big-integer")]),
        ("[1e400, 123456789012345678.5, 0.1]", []),
        ('{"":{"":1,"":[]}}', [("//", 13, "duplicate-key")]),
    ],
)
def test_what_decoders_let_pass_is_seen(text: str, expected: list[tuple[str, int, str]]) -> None:
    """Keys that come twice, however they are spelt, and integers that a double cannot hold."""
    assert [tuple(place) for place in flaws(text.encode())] == expected


def test_what_is_not_there_is_placed_at_its_parent() -> None:
    """A field that lacks is missing from somewhere."""
    assert find(b'{"a": {"b": 1}}', "/a/c") == 6
    assert find(b'{"a": {"b": 1}}', "/x/y") == 0


def test_a_hostile_line_costs_no_more_than_its_length() -> None:
    """Deep, long and full of quotes: one pass."""
    hostile = b"[" * 1000 + b'"' + b'\\"' * 200_000 + b'"' + b"]" * 1000

    assert list(flaws(hostile)) == []
    assert orjson.loads(hostile)
