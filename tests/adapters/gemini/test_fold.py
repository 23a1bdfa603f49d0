"""Folding: what a resume would load is live, and nothing else is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gemini_reading import Reading, read_bytes, read_fixture

HEADER = {"sessionId": "s", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z"}
TOKENS = {"input": 10, "output": 2, "cached": 4, "thoughts": 1, "tool": 0, "total": 13}


def _log(*rows: Any) -> Reading:
    return read_bytes(b"".join(json.dumps(row).encode() + b"\n" for row in (HEADER, *rows)))


def _user(name: str, text: str) -> dict[str, Any]:
    return {"id": name, "type": "user", "content": [{"text": text}]}


def _model(name: str, text: Any, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": "gemini", "content": text, "tokens": TOKENS, **fields}


def _said(reading: Reading, view: Any = "live") -> list[Any]:
    return [block.get("content", block.get("message")) for block in reading.blocks(view)]


def test_a_rewind_drops_the_message_and_all_after_it():
    """The dropped ones stay in the whole view, marked."""
    reading = _log(_user("a", "1"), _model("b", "2"), _user("c", "3"), {"$rewindTo": "b"})
    assert _said(reading) == ["1"]
    assert _said(reading, "all") == ["1", "2", "3"]
    assert [b.get("superseded", False) for b in reading.blocks("all")] == [False, True, True]


def test_a_rewind_to_an_unknown_id_drops_everything():
    """As the client does; a reader must not pretend otherwise."""
    reading = _log(_user("a", "1"), {"$rewindTo": "nobody"}, _user("c", "3"))
    assert _said(reading) == ["3"]
    assert _said(reading, "all") == ["1", "3"]


def test_a_list_replaces_all_messages_and_keeps_the_richest_version_of_each():
    """A resume restates without thoughts, tokens and calls; the live message still has them."""
    thought = [{"subject": "S", "description": "D", "timestamp": "2026-01-01T00:00:02Z"}]
    restated = {"id": "g", "type": "gemini", "content": [
        {"text": "**S** D", "thought": True}, {"text": "hello"}]}  # fmt: skip
    reading = _log(
        _user("a", "gone"),
        _model("g", "hello", thoughts=thought, model="m"),
        {"$set": {"messages": [restated]}},
    )
    thinking, text = reading.blocks("live")
    assert (thinking["summary"], thinking["content"]) == ("S", "D")
    assert thinking["timestamp"] == "2026-01-01T00:00:02Z"
    assert (text["content"], text["model"], text["usage"]["totalTokens"]) == ("hello", "m", 13)
    assert _said(reading, "all") == ["gone", "D", "hello"]


def test_a_message_restated_under_a_new_id_is_the_same_message():
    """A compression gives the kept tail new ids; content and call ids tell what it is."""
    reading = read_fixture("compress.jsonl")
    assert [b["id"] for b in reading.blocks() if b["type"] == "tool_use"] == ["g2:c1"]
    assert all(b["id"] != "n3:p" for b in reading.blocks("all"))
    assert not any(b.get("superseded") for b in reading.blocks("all"))
    assert {"u1:p", "g1:x"} <= {b["id"] for b in reading.blocks()}


def test_a_compression_that_keeps_one_of_equal_prompts_keeps_the_last():
    """What stands before it is history, in its place and with its own time, as what was kept is."""
    said = [_user("u1", "go on"), _model("g1", "one"), _user("u2", "go on"), _model("g2", "two")]
    kept = [_user("n1", "<state_snapshot>s</state_snapshot>"), _user("n2", "go on")]
    reading = _log(*said, {"$set": {"messages": [*kept, _model("n3", "two")]}})
    told = ["u1:p", "g1:x", "u2:p", "g2:x", "n1:s0"]
    assert [b["id"] for b in reading.blocks()] == told
    assert [b["id"] for b in reading.blocks("all")] == told


def test_two_equal_prompts_are_two_prompts():
    """Only a list that replaces messages can restate them under new ids."""
    reading = _log(_user("a", "again"), _user("b", "again"))
    assert [b["id"] for b in reading.blocks()] == ["a:p", "b:p"]


def test_a_message_that_grows_is_one_message():
    """Longer text under one id takes the place of the shorter, which is no text of its own."""
    reading = _log(_model("g", "Hel"), _model("g", "Hello"))
    assert _said(reading, "all") == ["Hello"]


def test_a_text_that_was_replaced_under_its_id_is_kept_as_superseded():
    """What stood there once is part of the whole view, under an id that growth cannot change."""
    reading = _log(_user("a", "first"), _user("a", "second text"))
    assert _said(reading) == ["second text"]
    assert sorted(_said(reading, "all")) == ["first", "second text"]


@pytest.mark.parametrize("kind", ["user", "gemini", "info"])
def test_the_text_that_stands_last_under_an_id_is_live(kind: str):
    """Be it shorter than the one before; what stood there first may come back."""
    said = [{"id": "a", "type": kind, "content": text} for text in ("a long first", "second")]
    assert _said(_log(*said)) == ["second"]
    assert sorted(_said(_log(*said), "all")) == ["a long first", "second"]
    assert _said(_log(*said, said[0])) == ["a long first"]


def test_messages_that_are_written_again_under_new_ids_are_the_same_messages():
    """Masking does so, one by one, before it lists them: calls stay with their results."""

    def answer(text: str) -> dict[str, Any]:
        return {"functionResponse": {"id": "c", "name": "ls", "response": {"output": text}}}

    call = {"id": "ls__c", "name": "ls", "args": {}, "status": "success"}
    again = [
        {"id": "u2", "type": "user", "content": [
            {"text": "<session_context>c</session_context>"}, {"text": "list"}]},
        {"id": "g2", "type": "gemini", "content": [
            {"text": "I look."}, {"functionCall": {"id": "c", "name": "ls", "args": {}}}]},
        {"id": "f2", "type": "user", "content": [answer("<tool_output_masked>cut")]},
    ]  # fmt: skip
    reading = _log(
        _user("u", "list"),
        _model("g", "I look.", toolCalls=[{**call, "result": [answer("a whole")]}]),
        {"id": "f", "type": "user", "content": [answer("a whole")]},
        *again,
        {"$set": {"messages": again}},
        _model("h", "Done."),
    )
    live = [block for block in reading.blocks() if not block.get("hidden")]
    assert [(block["type"], block.get("content", block.get("output"))) for block in live] == [
        ("user_message", "list"),
        ("assistant_text", "I look."),
        ("tool_use", None),
        ("tool_result", "a whole"),
        ("assistant_text", "Done."),
    ]
    assert live[1]["id"] == "g:x"
    assert reading.sinks[0].usage()["totalTokens"] == 26


def test_what_was_typed_is_shown_also_if_it_was_written_later_or_only_once():
    """A version without `displayContent` is the poorer one, wherever it stands."""
    sent = _user("a", "@notes.txt, expanded")
    typed = {**sent, "displayContent": [{"text": "@notes.txt"}]}
    for versions in ([sent, typed], [typed, sent]):
        blocks = [block for block in _log(*versions).blocks() if not block.get("hidden")]
        assert [block["content"] for block in blocks] == ["@notes.txt"]


def test_an_image_before_a_result_is_kept():
    """Only what stands behind a result is a part of it."""
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    answer = {"functionResponse": {"id": "c", "name": "ls", "response": {"output": "x"}}}
    call = {"id": "c", "name": "ls", "status": "success", "result": None}
    turn = {"id": "u", "type": "user", "content": [image, answer, {**image, "n": 2}]}
    blocks = _log(_model("g", "t", toolCalls=[call]), turn).blocks()
    (kept,) = [block for block in blocks if block.get("hidden")]
    assert kept["metadata"]["row"] == image
    (result,) = [block for block in blocks if block["type"] == "tool_result"]
    assert [part["type"] for part in result["output"]] == ["text", "image"]


def test_tokens_count_once_per_message():
    """However often a message is restated, its counts stand on its last block once."""
    call = {"id": "c", "name": "ls", "status": "success", "result": "x"}
    reading = _log(_model("g", "t"), _model("g", "t", toolCalls=[call]), _model("g", "t"))
    assert reading.sinks[0].usage()["totalTokens"] == 13
    assert [b["type"] for b in reading.blocks() if "usage" in b] == ["tool_result"]
    usage = reading.blocks()[-1]["usage"]
    assert (usage["inputTokens"], usage["cacheReadTokens"]) == (6, 4)
    assert (usage["outputTokens"], usage["thinkingTokens"], usage["exact"]) == (3, 1, True)


@pytest.mark.parametrize(
    ("tokens", "total", "exact"),
    [
        ({**TOKENS, "tool": 5, "total": 18}, 18, True),
        ({**TOKENS, "tool": 5, "total": 13}, 13, True),
        ({**TOKENS, "total": 99}, 13, False),
        ({"input": "x", "output": None, "total": 0}, 0, True),
    ],
)
def test_tool_prompt_tokens_count_where_the_total_says_so(
    tokens: dict[str, Any], total: int, exact: bool
):
    """The sum of our counts is the client's total, or the counts are called inexact."""
    usage = _log({**_model("g", "t"), "tokens": tokens}).sinks[0].usage()
    assert (usage["totalTokens"], usage["exact"]) == (total, exact)


def test_counts_are_inexact_where_the_client_lost_some():
    """Old clients keep one turn's tokens of several; messages may have none at all."""
    assert read_fixture("era-0.15.json").sinks[0].usage()["exact"] is False
    assert read_fixture("rewind.jsonl").sinks[0].usage()["exact"] is False
    assert read_fixture("era-0.29-tools.json").sinks[0].usage()["exact"] is False
    assert read_fixture("era-0.35-lost-child.json").sinks[0].usage()["exact"] is True


def test_a_masked_output_is_shown_as_it_was():
    """A later record replaces an output by a stub; the earlier line still has it."""
    outputs = [b["output"] for b in read_fixture("masked.jsonl").blocks("all") if "output" in b]
    assert outputs == ["a\nb"]


def test_each_call_and_result_is_there_once_though_a_log_says_it_four_times():
    """The record, its functionResponse turn, and both again on every resume."""
    blocks = read_fixture("era-0.61-same-minute-resume.jsonl").blocks("all")
    uses = [b["toolUseId"] for b in blocks if b["type"] == "tool_use"]
    results = [b["toolUseId"] for b in blocks if b["type"] == "tool_result"]
    assert len(uses) == len(set(uses)) == 4
    assert results == uses


def test_parallel_results_stay_with_their_calls():
    """A newer client wrote all results of a turn into each call when it resumed."""
    blocks = read_fixture("era-0.38-resumed-by-newer.jsonl").blocks()
    outputs = [b["output"] for b in blocks if b["type"] == "tool_result"]
    assert [output[:14] for output in outputs] == [
        "hello world\n", "Directory list", "File not found", "Successfully c",
    ]  # fmt: skip


def test_a_context_message_has_the_same_id_in_every_session():
    """The client gives it one id for all; sessions are distinguished by `sessionId`."""
    ids = {
        read_fixture(name).blocks("all")[0]["id"]
        for name in ("stub.jsonl", "failed-turn.jsonl", "era-0.61-tools.jsonl")
    }
    assert ids == {"d04923d38bb0f6017037e74183378ef4:s0"}


@pytest.mark.parametrize("data", [b"", b"\n\n", json.dumps(HEADER).encode() + b"\n"])
def test_a_transcript_without_messages_is_no_error(data: bytes):
    """Empty and header-only files give no block and a remark."""
    reading = read_bytes(data)
    assert reading.blocks("all") == []
    assert reading.findings == ["no-messages"]
    assert not reading.sinks[0].damaged


def test_a_torn_row_glued_to_the_next_is_damage_and_the_next_is_read():
    """The client appends behind a torn line; what stands behind it still counts."""
    reading = read_fixture("torn.jsonl")
    assert reading.totals() == {
        "lines": 9, "parsed": 4, "hidden": 1, "folded": 3, "damaged": 1, "recovered": 1
    }  # fmt: skip
    assert reading.findings == ["splice"]


def test_only_lf_ends_a_line():
    """U+2028 and its like stand raw in what Node writes."""
    reading = read_fixture("separators.jsonl")
    assert reading.totals()["lines"] == 3
    assert reading.blocks()[0]["content"] == "a\u2028b\u2029c\x85d"


def test_a_lone_surrogate_is_marked_lossy():
    """What cannot be written is replaced and said to be."""
    text = next(b for b in read_fixture("unicode.jsonl").blocks() if b["type"] == "assistant_text")
    assert text["lossy"] == ["lone-surrogate"]
    assert "\ufffd" in text["content"]
