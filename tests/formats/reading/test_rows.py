"""Rows, salvage and the accounting of every line."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats import rows as salvaging
from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import Row, Tally, read_rows, salvage


def read(data: bytes, cap: int = 10_000) -> tuple[list[Row], Tally, list[Finding]]:
    """Read `data`, settling each whole row as parsed."""
    tally, findings = Tally(), []
    rows = []
    for row in read_rows(io.BytesIO(data), "f", tally, findings.append, cap=cap):
        tally.settle_parsed(row)
        rows.append(row)
    return rows, tally, findings


def values(data: bytes) -> list[Any]:
    """Return what the rows hold."""
    return [row.value for row in read(data)[0]]


def kinds(data: bytes) -> list[str]:
    """Return the ids of the findings."""
    return [finding.id for finding in read(data)[2]]


DAMAGE = {
    "two welded records": (b'{"a":1}{"b":2}\n', [{"a": 1}, {"b": 2}], "splice"),
    "welded with a space": (b'{"a":1} {"b":2}\n', [{"a": 1}, {"b": 2}], "splice"),
    "a stub before a record": (b'{"a":1,"b":"x{"c":3}\n', [{"c": 3}], "splice"),
    "a stub with a nested object before a record": (
        b'{"u":{"in":{"x":1}},"v":[{"y":2}],"t":"cut{"c":{"d":{"e":3}}}\n',
        [{"c": {"d": {"e": 3}}}],
        "splice",
    ),
    "a stub after a record": (b'{"a":1}{"b":"x\n', [{"a": 1}], "splice"),
    "NUL prefix": (b'\0\0\0\0{"a":1}\n', [{"a": 1}], "nul-run"),
    "NUL middle": (b'{"a":1}\0\0\0{"b":2}\n', [{"a": 1}, {"b": 2}], "nul-run"),
    "NUL tail": (b'{"a":1}\0\0\0\n', [{"a": 1}], "nul-run"),
    "NULs in a record": (b'{"a":"x\0\0y"}\n', [], "nul-run"),
    "NULs only": (b"\0" * 64 + b"\n", [], "nul-run"),
    "bad UTF-8 in a string": (b'{"a":"\xff\xfe"}\n', [{"a": "\ufffd\ufffd"}], "bad-utf8"),
    "half a character": (b'{"a":"\xf0\x9f\x98"}\n', [{"a": "\ufffd\ufffd\ufffd"}], "bad-utf8"),
    "a number tail before a record": (b'12,"b":3}{"c":4}\n', [{"c": 4}], "splice"),
    "no JSON": (b"hello\n", [], "bad-json"),
    "an open object": (b'{"a":1\n', [], "bad-json"),
    "an array": (b"[1,2]\n", [], "not-an-object"),
    "a number": (b"17\n", [], "not-an-object"),
    "null": (b"null\n", [], "not-an-object"),
    "too deep": (b'{"a":' * 20_000 + b"\n", [], "too-deep"),
    "too deep brackets": (b"[" * 100_000 + b"\n", [], "too-deep"),
}


@pytest.mark.parametrize(("line", "found", "kind"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_line_gives_what_it_holds_whole_and_one_finding(
    line: bytes, found: list[Any], kind: str
) -> None:
    """What can be had is had, the line is named, and its neighbours are untouched."""
    rows, tally, findings = read(b'{"before":0}\n' + line + b'{"after":0}\n', cap=1_000_000)
    assert [row.value for row in rows] == [{"before": 0}, *found, {"after": 0}]
    assert [(f.id, f.line, f.offset, f.length) for f in findings] == [(kind, 2, 13, len(line))]
    assert (tally.lines, tally.parsed, tally.damaged, tally.recovered) == (3, 2, 1, len(found))


@pytest.mark.parametrize(("line", "found", "kind"), DAMAGE.values(), ids=DAMAGE)
def test_a_salvaged_row_says_which_bytes_hold_it(line: bytes, found: list[Any], kind: str) -> None:
    """Offset and length cut the record out of the file."""
    del kind, found
    data = b'{"before":0}\n' + line
    for row in read(data, cap=1_000_000)[0]:
        cut = data[row.offset : row.offset + row.length].decode(errors="surrogateescape").rstrip()
        assert re.sub("[\udc80-\udcff]", "\ufffd", cut) == json.dumps(
            row.value, ensure_ascii=False, separators=(",", ":")
        )


ODD = {
    "NaN": (b'{"a":NaN,"b":[Infinity,-Infinity]}\n', {"a": None, "b": [None, None]}),
    "a lone surrogate": (b'{"a":"\\ud800"}\n', {"a": "\ud800"}),
    "a byte-order mark": (b'\xef\xbb\xbf{"a":1}\n', {"a": 1}),
    "CR before the line feed": (b'{"a":1}\r\n', {"a": 1}),
    "control characters in a string": (b'{"a":"x\ty"}\n', {"a": "x\ty"}),
    "a number too big for a double": (b'{"a":123456789012345678901234567890}\n', None),
}


@pytest.mark.parametrize(("line", "value"), ODD.values(), ids=ODD)
def test_a_whole_line_with_unusual_values_is_no_damage(line: bytes, value: Any) -> None:
    """The row is given, and the line is counted as whatever its reader settles."""
    rows, tally, findings = read(line)
    assert len(rows) == 1
    assert not rows[0].salvaged
    assert findings == []
    assert (tally.parsed, tally.damaged) == (1, 0)
    if value is not None:
        assert rows[0].value == value


def test_non_finite_numbers_are_named_as_lost() -> None:
    """A block made of such a row can say why it differs."""
    assert read(b'{"a":NaN}\n')[0][0].lossy == ("non-finite",)


@pytest.mark.parametrize("blank", [b"\n", b"  \t\n", b"\r\n", b"\xef\xbb\xbf\n", b"   "])
def test_blank_lines_are_hidden_and_no_damage(blank: bytes) -> None:
    """They are counted, and nothing is said of them."""
    rows, tally, findings = read(b'{"a":1}\n' + blank)
    assert (len(rows), tally.lines, tally.hidden, findings) == (1, 2, 1, [])


def test_an_incomplete_last_line_is_a_torn_tail() -> None:
    """It is a warning of its own kind, not bad JSON."""
    assert kinds(b'{"a":1}\n{"b":') == ["torn-tail"]
    assert kinds(b'{"a":1}\n{"b":"\xf0\x9f') == ["torn-tail"]


def test_a_whole_last_line_without_line_feed_is_a_row() -> None:
    """Nothing is lost, so nothing is said."""
    assert values(b'{"a":1}\n{"b":2}') == [{"a": 1}, {"b": 2}]
    assert kinds(b'{"a":1}\n{"b":2}') == []


def test_a_line_over_the_cap_is_reported_and_passed_over() -> None:
    """Its neighbours are read."""
    rows, tally, findings = read(b'{"a":1}\n"' + b"x" * 50 + b'"\n{"b":2}\n', cap=20)
    assert [row.value for row in rows] == [{"a": 1}, {"b": 2}]
    assert [(f.id, f.offset, f.length) for f in findings] == [("oversize", 8, 53)]
    assert tally.damaged == 1


def test_a_line_of_endless_openings_is_given_up_after_bounded_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of attempts does not grow with the line."""
    attempts = 0
    genuine = salvaging._value_at

    def counted(*arguments: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return genuine(*arguments)

    monkeypatch.setattr(salvaging, "_value_at", counted)
    salvage(b'{"a' * 300_000)
    assert attempts <= salvaging.MAX_STARTS + 2


def test_measuring_many_welded_records_takes_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters are turned into bytes once each, however many records share the line."""
    measured = 0
    genuine = salvaging._bytes

    def counted(text: str) -> bytes:
        nonlocal measured
        measured += len(text)
        return genuine(text)

    monkeypatch.setattr(salvaging, "_bytes", counted)
    line = b"{}" * 20_000
    assert len(salvage(line).values) == 20_000
    assert measured <= 2 * len(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
RECORD = st.dictionaries(st.text(min_size=1, max_size=4), JSON, min_size=1, max_size=3)
LINE = st.one_of(
    RECORD.map(lambda value: orjson.dumps(value) + b"\n"),
    st.sampled_from([case[0] for name, case in DAMAGE.items() if len(case[0]) < 200]),
    st.sampled_from([b"\n", b" \n", b"\0\n", b"\r\n", b"\xef\xbb\xbf\n"]),
    st.binary(max_size=12).map(lambda junk: junk.replace(b"\n", b"") + b"\n"),
)


@given(st.lists(LINE, max_size=8), st.binary(max_size=8), st.integers(30, 200))
def test_every_line_is_counted_exactly_once(chunks: list[bytes], tail: bytes, cap: int) -> None:
    """Parsed + hidden + folded + damaged is the number of lines, whatever the bytes."""
    data = b"".join(chunks) + tail
    _, tally, _ = read(data, cap)
    assert tally.parsed + tally.hidden + tally.folded + tally.damaged == tally.lines
    assert tally.lines == data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


@given(st.lists(LINE, max_size=8), st.binary(max_size=8))
def test_good_bytes_and_reported_bytes_are_all_the_bytes(chunks: list[bytes], tail: bytes) -> None:
    """What gave no whole row stands in a finding, to the byte; blank lines apart."""
    data = b"".join(chunks) + tail
    rows, tally, findings = read(data)
    whole = {row.line: len(row.raw) for row in rows if not row.salvaged}
    reported = {f.line: f.length or 0 for f in findings if f.is_damage}
    assert not whole.keys() & reported.keys()
    assert len(reported) == tally.damaged
    sizes = {**whole, **reported}
    for number, text in enumerate(data.split(b"\n"), 1):
        ended = number <= data.count(b"\n")
        if number in sizes:
            assert sizes[number] == len(text) + ended
        else:
            assert not text.strip() or text == b"\xef\xbb\xbf"


@given(st.lists(RECORD, min_size=1, max_size=5), st.data())
def test_cutting_a_file_anywhere_keeps_every_earlier_record(
    records: list[dict[str, Any]], data: st.DataObject
) -> None:
    """A cut costs at most the record it goes through, and that one is reported."""
    encoded = [orjson.dumps(record) + b"\n" for record in records]
    whole = b"".join(encoded)
    at = data.draw(st.integers(0, len(whole)))
    rows, _, findings = read(whole[:at])
    kept = sum(len(b"".join(encoded[: n + 1])) - 1 <= at for n in range(len(records)))
    assert [row.value for row in rows][:kept] == records[:kept]
    if whole[:at] and not whole[:at].endswith(b"\n") and len(rows) == kept:
        clean = b"".join(encoded[:kept])
        assert bool(findings) == (at > len(clean))


@given(st.lists(RECORD, min_size=2, max_size=4), st.binary(min_size=1, max_size=6), st.data())
def test_junk_in_one_line_costs_no_other_line(
    records: list[dict[str, Any]], junk: bytes, data: st.DataObject
) -> None:
    """Bytes overwritten within a line leave all the others as they are."""
    encoded = [orjson.dumps(record) + b"\n" for record in records]
    hit = data.draw(st.integers(0, len(records) - 1))
    line = encoded[hit]
    at = data.draw(st.integers(0, len(line) - 2))
    encoded[hit] = line[:at] + junk.replace(b"\n", b"?") + line[at + 1 :]
    rows = read(b"".join(encoded))[0]
    others = [row.value for row in rows if row.line != hit + 1]
    assert others == [record for number, record in enumerate(records) if number != hit]
