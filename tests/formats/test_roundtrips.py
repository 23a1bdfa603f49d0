"""What is written comes back from every JSON reader as it was, or is not written."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid
from agentsdir.formats.store.log import Record, as_record, encode_record

pytestmark = pytest.mark.feature("S-05")

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
EDGES = [
    sign * 2**power + step for sign in (1, -1) for power in (53, 63, 64) for step in (-1, 0, 1)
]
INTEGERS = st.integers() | st.integers(-(2**66), 2**66) | st.sampled_from(EDGES)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats() | ANY_TEXT
LAWFUL = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@st.composite
def deep(draw: Any) -> Any:
    """Return lists and objects in each other, about as deep as the limit."""
    value = draw(SCALARS)
    for is_list in draw(st.lists(st.booleans(), min_size=120, max_size=132)):
        value = [value] if is_list else {"k": value}
    return value


VALUES = (
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
        max_leaves=12,
    )
    | deep()
)


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are equal with their types: 1 is neither 1.0 nor true."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)


def flaw(value: Any, depth: int = 1) -> str | None:
    """Say which rule of SPEC.md, "Values", a value breaks."""
    if isinstance(value, str):
        return "surrogate" if any("\ud800" <= c <= "\udfff" for c in value) else None
    if isinstance(value, float):
        return None if math.isfinite(value) else "not finite"
    if type(value) is int:
        return None if abs(value) <= 2**53 - 1 else "too big"
    if not isinstance(value, (dict, list)):
        return None
    if depth > 128:
        return "too deep"
    inside = [*value, *value.values()] if isinstance(value, dict) else value
    return next((found for item in inside if (found := flaw(item, depth + 1))), None)


@given(VALUES)
@settings(max_examples=250)
@example([[2**53 - 1, -(2**53) + 1, -0.0, 5e-324, 1.7976931348623157e308]])
@example({"": "\x00\x1f\x7f\u2028\ufeff\uffff\U0010ffff"})
def test_a_value_is_refused_or_comes_back_from_both_readers(value: Any) -> None:
    """Refused exactly when it breaks a rule of the format; else equal, types and key order too."""
    for encode in (jsontext.encode, jsontext.encode_document):
        if flaw(value):
            with pytest.raises(Invalid) as refused:
                encode(value)
            assert refused.value.kind == "value-refused"
        else:
            text = encode(value)
            assert same(json.loads(text), value)
            assert same(orjson.loads(text), value)
            text.decode("utf-8", "strict")


@given(st.dictionaries(ANY_TEXT, VALUES, max_size=3))
def test_a_records_data_is_refused_or_comes_back(data: dict[str, Any]) -> None:
    """On one line, whatever the texts hold."""
    record = Record(1, "2026-01-02T03:04:05Z", "e", "0" * 32, data, "0" * 16)
    if flaw({"data": data}):
        with pytest.raises(Invalid):
            encode_record(record)
    else:
        line = encode_record(record)
        assert line.count(b"\n") == 1
        assert line.endswith(b"\n")
        back = as_record(orjson.loads(line))
        assert back is not None
        assert same(back.data, data)
        assert same(json.loads(line)["data"], data)


@given(VALUES)
def test_what_is_cleaned_is_written_and_says_why_when_it_changed(value: Any) -> None:
    """Cleaning gives every reason of its own, and none that does not hold."""
    reasons: set[str] = set()
    made = jsontext.clean(value, reasons)
    assert flaw(made) is None
    assert bool(reasons) == (flaw(value) is not None)
    assert reasons <= {"lone-surrogate", "big-integer", "non-finite", "too-deep"}
    if not reasons:
        assert same(made, value)
    assert same(orjson.loads(jsontext.encode(made)), made)


def nested(levels: int) -> Any:
    """Return lists in lists."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@given(st.lists(LAWFUL, min_size=10, max_size=40))
@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@example([nested(128), 2**53 - 1, -(2**53) + 1, 5e-324, 1.7976931348623157e308, -0.0])
@example(["".join(map(chr, range(0x20))), "\x7f\x80\u2028\ufeff\uffff\U0010ffff", {"": {}}])
def test_jq_reads_every_value_that_is_written(values: list[Any]) -> None:
    """And gives it back equal; only how it spells a number is its own affair."""
    text = b"".join(jsontext.encode(value) + b"\n" for value in values)
    done = subprocess.run(["jq", "-c", "."], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    as_numbers = {"parse_int": float}
    back = [json.loads(line, **as_numbers) for line in done.stdout.splitlines()]
    assert back == json.loads(json.dumps(values), **as_numbers)
