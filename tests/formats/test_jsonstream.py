"""JSON that is read piece by piece says what it says as a whole; what is no JSON is refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsdir.formats import jsonstream
from agentsdir.formats.errors import Invalid
from agentsdir.formats.jsonstream import JSONStream

SMALL = st.integers(1, 40)
"""Bytes that a stream gives at a time, and that are read at a time."""
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
LAYOUTS: list[Callable[[Any], str]] = [
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, indent="\t", separators=(" ,", " \r\n: ")),
]


class Halting(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        """Return fewer bytes than are asked for."""
        return super().read(self._most)


def stream(data: bytes, most: int = 7) -> JSONStream:
    """Return a stream of bytes that come in small pieces."""
    return JSONStream(Halting(data, most))


def read(document: JSONStream, value: Any) -> Any:
    """Read a value of which the kind is known, and skip all that is neither text nor container."""
    if isinstance(value, dict):
        return {key: read(document, value[key]) for key in document.members()}
    if isinstance(value, list):
        wanted = iter(value)
        return [read(document, next(wanted)) for _ in document.items()]
    if isinstance(value, str):
        return "".join(document.pieces())
    document.skip()
    return value


@given(VALUES, SMALL, st.sampled_from(LAYOUTS))
def test_a_document_is_read_as_it_was_written(value: Any, most: int, layout: Any) -> None:
    """Whatever wrote it, and wherever its bytes are cut on the way."""
    document = stream(layout(value).encode(errors="surrogatepass"), most)

    assert read(document, value) == value
    document.end()


@given(VALUES, SMALL, st.sampled_from(LAYOUTS))
def test_any_value_can_be_passed_over(value: Any, most: int, layout: Any) -> None:
    """What follows it is read."""
    document = stream(layout([value, "last"]).encode(), most)
    items = document.items()
    next(items)
    document.skip()
    next(items)

    assert document.text(10) == "last"
    assert list(items) == []


PARTS = [*'{}[]:,"\\ \t\n', "true", "null", "1", "-0.5e3", '"a"', "\\u00e9", "\\ud83d\\ude00",
         "\\ud83d", "é", "🦀", "\x00", "01", "tru", '\\"']  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), SMALL)
@example('"\\ud83d\\ude00', 3)
@example("[1,]", 1)
@example('{"a":1,}', 1)
def test_what_is_taken_is_json_and_what_is_refused_is_none(text: str, most: int) -> None:
    """As the writer's own parser has it, for any text of the alphabet of JSON."""
    data = text.encode()
    try:
        orjson.loads(data)
        is_json = True
    except orjson.JSONDecodeError:
        is_json = False
    document = stream(data, most)
    taken = False
    with suppress(Invalid):
        document.skip()
        document.end()
        taken = True

    assert taken == is_json


@given(st.binary(max_size=40), SMALL)
def test_any_bytes_are_read_or_refused(data: bytes, most: int) -> None:
    """There is no other error."""
    for method in (JSONStream.skip, lambda one: [*one.members()], lambda one: [*one.pieces()]):
        with suppress(Invalid):
            method(stream(data, most))


@pytest.mark.parametrize("size", [1, 100, 70_000])
@pytest.mark.parametrize("piece", ["\\\\", "\\ud83d\\ude00", "🦀", "é", "\\u00e9", "a\\n"])
def test_a_long_text_comes_in_pieces_that_are_its_characters(piece: str, size: int) -> None:
    """No escape, pair or character is cut, and what is held does not grow with the text."""
    written = piece * size
    document = stream(b'"%b"' % written.encode(), 4096)

    pieces = list(document.pieces())

    assert "".join(pieces) == orjson.loads(b'"%b"' % written.encode())
    assert max(map(len, pieces)) <= jsonstream._CHUNK


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a":1,"a":2}', "twice"),
        (b'{"a":1,"\\u0061":2}', "twice"),
        (b'{"a":1', "ends too early"),
        (b'{"a"', "ends too early"),
        (b'{"a":"b', "ends too early"),
        (b'{"a":"b\\', "ends too early"),
        (b"[1]", "no { stands"),
        (b'{"a":' + b"[" * 200, "deeper than 128"),
        (b'{"a":' * 200, "deeper than 128"),
        (b'{"a":' + b"1" * 5000 + b"}", "no value"),
        (b'{"' + b"a" * 5000 + b'":1}', "more than 4096"),
        (b'{"a":"\xff"}', "cannot be decoded"),
        (b'{"a":"\\ud800"}', "cannot be decoded"),
        (b'{"a":"\n"}', "cannot be decoded"),
        (b"{" + b",".join(b'"%d":1' % number for number in range(10_001)) + b"}", "10000 keys"),
    ],
)
def test_a_refusal_says_why_and_where(data: bytes, why: str) -> None:
    """The kind is `not-json`."""
    document = stream(data, 4096)
    with pytest.raises(Invalid, match=f"{why}.*at byte [0-9]+") as caught:
        [document.skip() for _ in document.members()]
    assert caught.value.kind == "not-json"


def test_something_after_the_end_is_refused() -> None:
    """A second document, for one."""
    document = stream(b"{} {}")
    document.skip()
    with pytest.raises(Invalid, match="follows"):
        document.end()
