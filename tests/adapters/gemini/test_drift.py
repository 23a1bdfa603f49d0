"""What the reader does not know is kept, hidden, and named; every other line has a reason."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from gemini_files import answer, context, document, header, log, message, prompt
from gemini_reading import Reading, is_record, read_bytes

from agentsdir.adapters.gemini.follow import GeminiFollower

if TYPE_CHECKING:
    from pathlib import Path


def _drifts(reading: Reading) -> list[str]:
    return [one.message for sink in reading.sinks for one in sink.drifts.findings()]


def _qwen(uuid: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": uuid, "parentUuid": parent, "sessionId": "s", "timestamp": "2026-01-02T03:04:05Z",
        "type": "user", "cwd": "/w", "version": "0.99.1",
        "message": {"role": "user", "parts": [{"text": uuid}]}, **fields,
    }  # fmt: skip


CALL = {"id": "c1", "name": "ls", "args": {}, "result": None, "timestamp": "2026-01-02T03:04:06Z"}
TALK = (header(), context(), prompt("hi"), answer())
ASKED = _qwen("u", None)
REPORT = {"session_id": "s", "response": "yes", "stats": {"models": {}, "tools": {}}}
STREAM = (
    {"type": "init", "timestamp": "2026-01-02T03:04:05Z", "session_id": "s", "model": "m"},
    {"type": "message", "timestamp": "2026-01-02T03:04:05Z", "role": "user", "content": "hi"},
)
TURNS = [{"role": "user", "parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "a"}]}]
ENTRY = {"sessionId": "s", "messageId": 0, "type": "user", "message": "hi",
         "timestamp": "2026-01-02T03:04:05Z"}  # fmt: skip

# What stands there, and the kind that it is named as.
UNKNOWN = {
    "row": (log(*TALK, {"type": "poem"}), "row 'poem'"),
    "row without type": (log(*TALK, {"$unset": {"a": 1}}), "row 'without type'"),
    "message type": (log(*TALK, message("p", "poem", "x")), "message 'poem'"),
    "metadata": (log(*TALK, {"$set": {"mood": "good"}}), "metadata 'mood'"),
    "header": (log(header(mood="good"), *TALK[1:]), "metadata 'mood'"),
    "list entry": (log(*TALK, {"$set": {"messages": [prompt("hi"), 7]}}), "message 'int'"),
    "prompt part": (log(*TALK, prompt([{"poem": 1}], "u2")), "prompt part 'poem'"),
    "answer part": (log(*TALK, message("g2", "gemini", [{"executableCode": {}}])),
                    "answer part 'executableCode'"),
    "call": (log(*TALK, answer("", "g2", toolCalls=["ls"])), "toolCalls entry 'str'"),
    "thought": (log(*TALK, answer("", "g2", thoughts=[3])), "thoughts entry 'int'"),
    "status": (log(*TALK, answer("", "g2", toolCalls=[{**CALL, "status": "dreaming"}])),
               "status 'dreaming'"),
    "document": (document(prompt("hi"), message("p", "poem", "x")), "message 'poem'"),
    "document header": (document(prompt("hi"), mood="good"), "metadata 'mood'"),
    "qwen row": (log(ASKED, _qwen("p", "u", type="poem")), "row 'poem'"),
    "qwen subtype": (log(ASKED, _qwen("p", "u", type="system", subtype="poem")), "subtype 'poem'"),
    "qwen provenance": (log(ASKED, _qwen("p", "u", provenance="muse")), "provenance 'muse'"),
    "qwen part": (
        log(ASKED, _qwen("p", "u", type="assistant", message={"parts": [{"poem": 1}]})),
        "answer part 'poem'",
    ),
    "prompt log": (json.dumps([ENTRY, {"poem": 1}]).encode(), "entry 'object'"),
    "prompt log type": (json.dumps([ENTRY, {**ENTRY, "messageId": 1, "type": "poem"}]).encode(),
                        "entry 'poem'"),
    "saved chat": (json.dumps([*TURNS, {"role": "poet", "parts": []}]).encode(), "turn 'poet'"),
    "report": (json.dumps({**REPORT, "mood": "good"}).encode(), "key 'mood'"),
    "stream": (log(*STREAM, {"type": "poem"}), "line 'poem'"),
    "stream role": (log(*STREAM, {"type": "message", "role": "poet"}), "role 'poet'"),
}  # fmt: skip
# What is said about something that has a block of its own, or about the whole session.
BESIDE_A_BLOCK = (
    "document header", "status", "qwen provenance", "prompt log type",
)  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_of_no_known_kind_is_named_once_and_kept(name: str) -> None:
    """Nothing of it is without a block."""
    data, kind = UNKNOWN[name]
    reading = read_bytes(data, "made.json" if name.startswith("document") else "made.jsonl")
    [said] = _drifts(reading)
    assert said.startswith(f"{kind}: unknown, x 1")
    assert ("(client 0.99.1)" in said) == name.startswith("qwen")
    value = kind.partition("'")[2].rstrip("'")
    kept = b"".join(reading.lines("all"))
    if name not in BESIDE_A_BLOCK:
        assert value.encode() in kept or value in ("without type", "int", "str", "object")
    reading.totals()


@pytest.mark.parametrize("name", UNKNOWN)
def test_follow_names_the_same_kinds(name: str, tmp_path: Path) -> None:
    """Whatever else a reader that goes with the file says."""
    data, kind = UNKNOWN[name]
    path = tmp_path / ("made.json" if name.startswith("document") else "made.jsonl")
    path.write_bytes(data)
    follower = GeminiFollower(path, hidden=True)
    list(follower.poll())
    list(follower.end())
    found = [one.message for one in follower.findings if one.id == "drift"]
    assert [said.partition(":")[0] for said in found] == [kind]


@pytest.mark.parametrize(
    "data",
    [log(*TALK), document(prompt("hi"), answer()), log(ASKED), json.dumps(REPORT).encode(),
     log(*STREAM), json.dumps(TURNS).encode(), json.dumps([ENTRY]).encode()],
    ids=["log", "document", "qwen", "report", "stream", "chat", "prompts"],
)  # fmt: skip
def test_what_clients_write_is_no_drift(data: bytes) -> None:
    """A signature alone in a part is none either."""
    assert _drifts(read_bytes(data)) == []
    signed = log(*TALK, message("g2", "gemini", [{"thoughtSignature": "x"}]))
    assert _drifts(read_bytes(signed)) == []


def test_lines_without_a_block_are_counted_by_their_reason() -> None:
    """A log says why each of its lines is hidden or folded, and Qwen's rows say it by subtype."""
    rows = [
        *TALK, {"$set": {"lastUpdated": "2026-01-02T03:04:06.000Z"}}, {"$set": {"summary": "s"}},
        answer(), prompt("no", "u2"), {"$rewindTo": "u2"}, message("n", "info", ""),
        prompt("System: Please continue.", "u3"), message("p", "poem", "x"),
    ]  # fmt: skip
    [sink] = read_bytes(log(*rows)).sinks
    assert sink.tally.hidden_by == {
        "session-context": 1, "empty-notice": 1, "continuation": 1, "unknown": 1,
    }  # fmt: skip
    assert sink.tally.folded_by == {"header": 1, "metadata": 2, "repeated": 1, "rewind": 1}
    assert sink.superseded_by() == {"rewind": 1}
    books = _qwen("b", "u", type="system", subtype="ui_telemetry")
    [sink] = read_bytes(log(ASKED, books)).sinks
    assert sink.tally.hidden_by == {"ui-telemetry": 1}


def test_a_row_that_only_changes_what_is_known_has_a_hidden_block() -> None:
    """It is counted as before, and without `--hidden` there is no trace of it."""
    rows = [*TALK, {"$set": {"lastUpdated": "2026-01-02T03:04:06.000Z"}}, {"$rewindTo": "g1"}]
    reading = read_bytes(log(*rows))
    kept = [block for block in reading.blocks("all", records=True) if is_record(block)]
    assert [(block["message"], block["metadata"]["row"]) for block in kept] == [
        ("header row", rows[0]), ("metadata row", rows[-2]), ("rewind row", rows[-1]),
    ]  # fmt: skip
    assert all(block["hidden"] and "superseded" not in block for block in kept)
    bare = read_bytes(log(*rows), hidden=False)
    assert reading.totals() == bare.totals()
    assert not any(map(is_record, bare.blocks("all", records=True)))


def test_superseded_blocks_are_counted_by_what_left_them() -> None:
    """A rewind, a list that leaves messages out, and another text under the same id."""
    rows = [
        header(), prompt("one"), answer("two"), prompt("three", "u2"), {"$rewindTo": "u2"},
        prompt("four", "u3"), answer("five", "g3"), {"$set": {"messages": [prompt("one")]}},
        prompt("other"),
    ]  # fmt: skip
    [sink] = read_bytes(log(*rows)).sinks
    assert sink.superseded_by() == {"rewind": 1, "replaced": 3, "duplicate": 1}
