"""Blocks are written while rows are read; what changes later is put in its place at the end."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from gemini_reading import Reading, read_bytes

from agentsdir.adapters.gemini import read as module
from agentsdir.adapters.gemini.fold import RowDecoder

HEADER = {"sessionId": "s", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z"}


def _user(name: str, text: str) -> dict[str, Any]:
    return {"id": name, "type": "user", "content": [{"text": text}]}


def _model(name: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": "gemini", "content": text, **fields}


def _call(name: str, output: str) -> dict[str, Any]:
    response = {"id": name, "name": "ls", "response": {"output": output}}
    return {
        "id": name,
        "name": "ls",
        "status": "success",
        "result": [{"functionResponse": response}],
    }


def _log(*rows: Any) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def _ids(reading: Reading, view: Any = "all") -> list[str]:
    return [block["id"] for block in reading.blocks(view)]


def test_a_message_that_changes_after_others_came_keeps_its_place():
    """Its blocks were written already; they are written anew, and counted once."""
    reading = read_bytes(
        _log(
            HEADER,
            _model("a", "one"),
            _user("b", "two"),
            _model("a", "one", toolCalls=[_call("c", "x")]),
        ),
        hidden=False,
    )
    assert _ids(reading) == ["a:x", "a:cc", "a:rc", "b:p"]
    assert sum(reading.sinks[0].counts().values()) == 4
    assert reading.totals()["parsed"] == 3


def test_a_row_counts_as_what_it_gives_in_the_end():
    """A row whose blocks were written, and then written anew from a richer row, only restates."""
    call, richer = _call("c", "x"), _call("c", "x and more")
    reading = read_bytes(
        _log(
            HEADER,
            _model("a", "", toolCalls=[call]),
            _user("b", "two"),
            _model("a", "", toolCalls=[{**richer, "resultDisplay": "seen"}]),
        )
    )
    assert [block["source"]["line"] for block in reading.blocks()] == [4, 4, 3]
    assert (reading.totals()["parsed"], reading.totals()["folded"]) == (2, 2)


def test_a_header_that_comes_late_is_what_all_blocks_say():
    """Whatever was written before it."""
    reading = read_bytes(_log(_user("a", "1"), _user("b", "2"), HEADER, _user("c", "3")))
    assert [block["sessionId"] for block in reading.blocks()] == ["s", "s", "s"]
    assert _ids(reading) == ["a:p", "b:p", "c:p"]


def test_a_message_that_grows_for_ever_is_not_held_for_ever(monkeypatch: pytest.MonkeyPatch):
    """Rows over a limit are let go and read again; the outcome is the same."""
    log = _log(HEADER, *(_model("a", "x" * size) for size in range(1, 60)), _user("b", "2"))
    whole = read_bytes(log).lines("all")
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 100)
    assert read_bytes(log).lines("all") == whole


STARTED = 1767236645000  # AT, in milliseconds
AT = "2026-01-01T03:04:05"


@pytest.mark.parametrize(
    ("call_id", "ended", "took"),
    [
        (f"ls_{STARTED}_0", f"{AT}.250Z", 250),
        (f"ls__ls-{STARTED}-3fa09", f"{AT}.000Z", 0),
        (f"_{STARTED}_0", "2026-01-02T03:04:04.999Z", 86_399_999),
        (f"ls_{STARTED}_0", "2026-01-02T03:04:05.000Z", None),  # no call takes a day
        (f"ls_{STARTED}_0", "2026-01-01T03:04:04.999Z", None),  # it ended before it began
        (f"ls_{STARTED}_0", "2016-12-31T23:59:60.000Z", None),  # a leap second
        (f"ls_{STARTED}_0", None, None),
        (f"ls_{STARTED}_0x", f"{AT}.250Z", None),
        (f"ls_{STARTED}_", f"{AT}.250Z", None),
        (f"ls_{STARTED}_0_1", f"{AT}.250Z", None),
        (f"ls_1{STARTED}_0", f"{AT}.250Z", None),
        (f"{STARTED}_0", f"{AT}.250Z", None),
        ("ls_0", f"{AT}.250Z", None),
        ("ls", f"{AT}.250Z", None),
    ],
)
def test_a_call_took_as_long_as_its_id_and_its_end_say(
    call_id: str, ended: str | None, took: int | None
):
    """Some clients write the moment of a call into its id."""
    call = {**_call(call_id, "x"), "timestamp": ended}
    result = read_bytes(_log(HEADER, _model("a", "", toolCalls=[call]))).blocks()[-1]
    assert result["type"] == "tool_result"
    assert result.get("durationMs") == took


@pytest.mark.parametrize("spoil", [lambda row: row, lambda row: row.replace(b"out", b"not")])
@pytest.mark.parametrize("end", [b"\n", b"", b" \n", b"]\n"])
def test_what_is_written_again_is_taken_only_from_the_same_bytes(spoil: Any, end: bytes):
    """A row is decoded as ever where it merely looks like the results of the one before it."""
    calls = [_call("c", "out \U0001f642"), _call("d", "out")]
    parts = [part for call in calls for part in call["result"]]
    first = _log(_model("a", "", toolCalls=calls))
    again = spoil(orjson.dumps({"id": "u", "type": "user", "content": parts})) + end
    decoder = RowDecoder()
    assert decoder.decode(first) == orjson.loads(first)
    try:
        expected = orjson.loads(again)
    except orjson.JSONDecodeError:
        with pytest.raises(orjson.JSONDecodeError):
            decoder.decode(again)
    else:
        assert decoder.decode(again) == expected


@pytest.mark.parametrize("indent", [2, None, 1, 4])
@pytest.mark.parametrize("empty", [{}, {"id": "e"}, 7, "\n    }", [{}], None])
def test_a_document_is_read_by_its_brackets_where_its_indentation_misleads(
    indent: int | None, empty: Any
):
    """The client's own layout, any other, and messages in which the layout breaks off."""
    messages = [_user("a", "1\n    },\n    {"), empty, _model("b", "2"), _user("c", "3")]
    document = {**HEADER, "messages": messages, "kind": "main"}
    text = json.dumps(document, indent=indent)
    plain = read_bytes(json.dumps(document).encode(), "made.json")
    for spoilt in (text, text.replace("\n        ", "\n    "), text.replace("\n      ", "\n  ")):
        found = read_bytes(spoilt.encode(), "made.json")
        assert _ids(found) == _ids(plain)
        assert found.totals() == plain.totals()
        assert found.findings == plain.findings
        for block in found.blocks("all"):
            source = block["source"]
            raw = spoilt.encode()
            assert source["line"] == raw.count(b"\n", 0, source["offset"]) + 1
            orjson.loads(raw[source["offset"] : source["offset"] + source["length"]])
