"""JSON for small commands: to the byte and to the type what orjson gives."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats import smalljson

TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.text('\x00\x1b"\\\n\x7f\u2028')
PIECES = [b"0", b"-", b".", b"e9", b"\\", b'"', b"\xc3", b",", b"[", b"null"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
ODD = [
    b"", b" ", b"\n", b"{}\n", b"{} ", b" {}", b"{}{}", b"[1,]", b'{"a":1,"a":2}', b'"\\u00e9"',
    b'"\\ud800"', b'"\\ud83d\\ude00"', b"\xef\xbb\xbf{}", b"\xff", b'"\xed\xa0\x80"', b"NaN",
    b"[NaN]", b"-Infinity", b"[1e400]", b"[-1e400]", b"[1e-400]", b"[-0]", b"[-0.0]", b"[0.1]",
    b"[1E5]", b"[01]", b"[1.]", b"[+1]", b"[18446744073709551616]", b"[123456789012345]",
    b"[1234567890123456]", b"[-1234567890123456]", b'"\x00"', b'"\t"', b"tru", b"nul",
    b"[" * 300 + b"]" * 300, b"[" * 2000, b'{"a":' * 150 + b"1" + b"}" * 150,
]  # fmt: skip


def read(data: bytes) -> str:
    """Return what a command gets of some bytes: a value with its types, or that it is refused."""
    try:
        return repr(smalljson.read(data))
    except smalljson.NotAlike:
        return by_orjson(data)


def by_orjson(data: bytes) -> str:
    """Return what orjson makes of some bytes."""
    try:
        return repr(orjson.loads(data))
    except orjson.JSONDecodeError:
        return "refused"


@given(VALUES)
def test_what_is_written_is_what_orjson_writes(value: Any) -> None:
    """On one line and indented, and it is read back."""
    assert smalljson.write(value) == orjson.dumps(value)
    whole = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    assert smalljson.write(value, indent=True) == orjson.dumps(value, option=whole)
    assert read(smalljson.write(value)) == repr(value)


@pytest.mark.parametrize("data", ODD)
def test_what_is_odd_is_read_as_orjson_reads_it(data: bytes) -> None:
    """Numbers, escapes, encodings and depths where the libraries part."""
    assert read(data) == by_orjson(data)


@given(VALUES, st.data())
def test_whatever_is_read_is_read_as_by_orjson(value: Any, data: st.DataObject) -> None:
    """Also with some bytes put in."""
    text = bytearray(orjson.dumps(value))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        text[at:at] = data.draw(st.sampled_from(PIECES))
    assert read(bytes(text)) == by_orjson(bytes(text))


def test_a_process_that_has_loaded_nothing_reads_the_same() -> None:
    """Also every beginning of a record: this process has loaded `json`, which is told of errors."""
    record = b'{"seq":1,"ts":"2026","data":{"a":[null,-1.5,"\\n x"],"b":{}},"end":true}\n'
    cases = [*ODD, *(record[:at] for at in range(len(record))), b'{"a" 1}', b"{a}", b'["\\q"]']
    program = """
import sys
from agentsdir.formats import smalljson
assert "json" not in sys.modules
for data in eval(sys.stdin.read()):
    try:
        print(repr(repr(smalljson.read(data))))
    except smalljson.NotAlike:
        print(repr(None))
"""

    done = subprocess.run(
        [sys.executable, "-c", program], input=repr(cases), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip

    assert done.stderr == ""
    said = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert len(said) == len(cases)
    for data, value in zip(cases, said, strict=True):
        assert value in (None, by_orjson(data)), data
    assert len([value for value in said if value is not None]) > 5


def test_half_of_a_surrogate_pair_is_left_to_orjson() -> None:
    """Which refuses it, and says so."""
    with pytest.raises(smalljson.NotAlike):
        smalljson.write("\ud800")


def test_most_of_it_is_read_without_orjson() -> None:
    """Else none of this would be worth anything."""
    assert smalljson.read(b'{"a":[1,"\xc3\xa9",null,true,0.5]}\n') == {
        "a": [1, "é", None, True, 0.5]
    }


def test_a_process_that_reads_much_goes_on_with_orjson() -> None:
    """From a quarter of a megabyte on; before that it is not loaded."""
    program = """
import sys
from agentsdir.formats import jsontext
line = b'{"a":1}'
assert jsontext.decode(line) == {"a": 1} and jsontext.encode({"a": 1}) == line
print("orjson" in sys.modules)
for _ in range(40000):
    jsontext.decode(line)
print("orjson" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["False", "True"]


def test_a_wrong_text_is_refused_in_the_same_words_as_ever() -> None:
    """Also by a process that has not needed orjson yet."""
    program = """
from agentsdir.formats import jsontext
try:
    jsontext.decode(b'{"a":')
except jsontext.JSONDecodeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    with pytest.raises(orjson.JSONDecodeError) as refused:
        orjson.loads(b'{"a":')
    assert done.stdout.strip() == str(refused.value)
