"""JSON that every reader gets back unchanged."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid


class Colour(StrEnum):
    """An enumeration whose members are texts."""

    RED = "red"


@dataclass
class Point:
    """A data class of plain values."""

    x: int = 1


def nested(levels: int, kind: str = "list") -> Any:
    """Return lists or objects `levels` deep."""
    value: Any = [] if kind == "list" else {}
    for _ in range(levels - 1):
        value = [value] if kind == "list" else {"a": value}
    return value


REFUSED = {
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "2^53": 2**53,
    "-2^53": -(2**53),
    "2^64": 2**64,
    "a lone surrogate": "\ud800",
    "half a pair": "x\udc00y",
    "a surrogate in a key": {"\ud800": 1},
    "129 lists": nested(129),
    "129 objects": nested(129, "dict"),
    "an integer key": {1: "a"},
    "a null key": {None: "a"},
    "a tuple": (1, 2),
    "bytes": b"x",
    "a set": {1},
    "an object": object(),
    # orjson alone would write these as texts.
    "a time": datetime(2026, 1, 2, tzinfo=UTC),
    "a day": date(2026, 1, 2),
    "a UUID": UUID(int=1),
    "a member of an enumeration": Colour.RED,
    "a data class": Point(),
}


@pytest.mark.feature("S-05")
@pytest.mark.parametrize("place", ["bare", "in a list", "in an object"])
@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_would_not_come_back_is_refused(value: Any, place: str) -> None:
    """The refusal is `Invalid` with its own kind, and nothing is written."""
    whole = {"bare": value, "in a list": [0, value], "in an object": {"k": value}}[place]
    for encode in (jsontext.encode, jsontext.encode_document):
        with pytest.raises(Invalid) as refused:
            encode(whole)
        assert refused.value.kind == "value-refused"


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_nesting_of_128_levels_is_written(kind: str) -> None:
    """The limit itself is allowed."""
    value = nested(128, kind)
    assert orjson.loads(jsontext.encode(value)) == value


@pytest.mark.parametrize("value", [2**53 - 1, -(2**53) + 1, 0, -0.0, 1e308, 5e-324, "", "\0\x1f"])
def test_values_at_the_edge_are_written_exactly(value: Any) -> None:
    """They come back as they were, type included."""
    back = json.loads(jsontext.encode(value))
    assert back == value
    assert type(back) is type(value)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.feature("S-05")
@given(PLAIN)
def test_plain_values_survive_both_readers(value: Any) -> None:
    """Python's json and orjson both give back what was written, from one line."""
    line = jsontext.encode(value)
    assert b"\n" not in line
    assert json.loads(line) == value
    assert orjson.loads(line) == value
    assert json.loads(jsontext.encode_document(value)) == value


FOREIGN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**63, 2**66)
    | st.floats()
    | st.text(st.characters(exclude_categories=())),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=())), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(FOREIGN)
def test_cleaning_makes_any_value_encodable_and_says_whether_it_changed(value: Any) -> None:
    """What is cleaned can be written; what needed no cleaning is the same, and silent."""
    reasons: set[str] = set()
    cleaned = jsontext.clean(value, reasons)
    assert orjson.loads(orjson.dumps(cleaned)) == cleaned
    assert (cleaned == value) == (not reasons)
    again: set[str] = set()
    assert jsontext.clean(cleaned, again) == cleaned
    assert not again


@given(FOREIGN, st.integers(1, 130))
def test_what_is_exact_is_what_cleaning_leaves_as_it_is(value: Any, depth: int) -> None:
    """Both say the same of a list or an object, at any depth."""
    for whole in ([value], {"k": value}, {str(value)[:3]: [value]}, nested(120)):
        reasons: set[str] = set()
        jsontext.clean(whole, reasons, depth)
        assert jsontext.is_exact(whole, depth) == (not reasons)


@pytest.mark.parametrize(
    ("value", "cleaned", "reason"),
    [
        ("a\ud800b", "a\ufffdb", "lone-surrogate"),
        (2**64, str(2**64), "big-integer"),
        (-(2**63) - 1, str(-(2**63) - 1), "big-integer"),
        (math.nan, None, "non-finite"),
        (math.inf, None, "non-finite"),
        ({"\udfff": 1}, {"\ufffd": 1}, "lone-surrogate"),
    ],
)
def test_each_repair_is_named(value: Any, cleaned: Any, reason: str) -> None:
    """The value is replaced as documented, with the reason that the block will show."""
    reasons: set[str] = set()
    assert jsontext.clean([value], reasons) == [cleaned]
    assert reasons == {reason}


def test_what_is_too_deep_is_cut_at_128_levels() -> None:
    """The rest is named as left out, and the whole can be written."""
    reasons: set[str] = set()
    cleaned = jsontext.clean(nested(400), reasons)
    assert reasons == {"too-deep"}
    jsontext.encode(cleaned)


@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("levels", [1, 2, 5, 128, 129])
def test_depth_is_counted_in_levels_of_lists_and_objects(kind: str, levels: int) -> None:
    """A value of n levels is deeper than n - 1, and not deeper than n."""
    value = nested(levels, kind)
    assert not jsontext.deeper_than(value, levels)
    assert jsontext.deeper_than(value, levels - 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, b"2"),
        (2.0, b"2.0"),
        (-0.0, b"-0.0"),
        (100000.0, b"100000.0"),
        (0.1 + 0.2, b"0.30000000000000004"),
        (1e-5, b"0.00001"),
        (9e-6, b"9e-6"),
        (1e15, b"1000000000000000.0"),
        (1e16, b"1e+16"),
        (5e-324, b"5e-324"),
    ],
)
def test_a_number_is_spelled_as_the_spec_says(value: float, text: bytes) -> None:
    """Integers by digits; others by the shortest that comes back, with a fraction or an exponent.

    Else a derived file that another program made would differ (SPEC.md, "Derived files").
    """
    assert jsontext.encode(value) == text
    assert jsontext.encode_as_is({"a": value}) == b'{"a":%s}' % text


def test_a_string_is_escaped_where_json_demands_it_alone() -> None:
    """In the short forms where there are any; what is not ASCII stands as it is."""
    text = "".join(map(chr, range(0x20))) + '"\\/\x7f\x85é\u2028🦀'
    escaped = "".join(f"\\u{n:04x}" for n in range(0x20))
    for number, short in {8: "b", 9: "t", 10: "n", 12: "f", 13: "r"}.items():
        escaped = escaped.replace(f"\\u{number:04x}", f"\\{short}")
    assert jsontext.encode(text).decode() == f'"{escaped}\\"\\\\/\x7f\x85é\u2028🦀"'
