"""Standard output becomes stream events, as the run goes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from claude_support import FIXTURES, call, lines, parse, result, said
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.adapters.claude.stream import ClaudeTranslator
from agentsdir.formats.blocks import Reducer
from agentsdir.schemas.accept import accepts

pytestmark = [pytest.mark.feature("B-05"), pytest.mark.feature("B-06")]

GOLDEN = FIXTURES.parent / "golden" / "claude-stream"
_RECORDED = sorted(
    path
    for path in FIXTURES.glob("stdout-*.jsonl")
    if not path.name.endswith((".blocks.jsonl", "hello_json-2.1.98.jsonl"))
)
every_recording = pytest.mark.parametrize("path", _RECORDED, ids=lambda path: path.stem)


def _translate(data: bytes) -> tuple[ClaudeTranslator, list[dict[str, Any]]]:
    translator = ClaudeTranslator()
    events = []
    for line in data.split(b"\n"):
        events += translator.line(line)
    return translator, [*events, *translator.end()]


def _events(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    return _translate(lines(*rows))[1]


def _reduced(events: list[dict[str, Any]]) -> Reducer:
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    return reducer


def _line(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "session_id": "s", "parent_tool_use_id": None, **more}


def _system(subtype: str, **more: Any) -> dict[str, Any]:
    return _line("system", subtype=subtype, uuid=f"s-{subtype}", **more)


def _said(uuid: str, message: str, part: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    content = {"id": message, "model": "m", "content": [part], "usage": usage}
    return _line("assistant", uuid=uuid, message=content, **more)


def _began(message: str) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    return _line(
        "stream_event", event={"type": "message_start", "message": {"id": message, "usage": usage}}
    )


def _part(index: int, part: dict[str, Any]) -> dict[str, Any]:
    event = {"type": "content_block_start", "index": index, "content_block": part}
    return _line("stream_event", event=event)


def _delta(index: int, **delta: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "index": index, "delta": delta}
    return _line("stream_event", event=event)


def _more(index: int, text: str) -> dict[str, Any]:
    return _delta(index, type="text_delta", text=text)


def _stop(index: int) -> dict[str, Any]:
    return _line("stream_event", event={"type": "content_block_stop", "index": index})


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _result(**more: Any) -> dict[str, Any]:
    return _line("result", uuid="r1", subtype="success", is_error=False, **more)


def _shape(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event.get("blockId", "")) for event in events]


@every_recording
def test_recorded_output_gives_the_recorded_events(path: Path) -> None:
    """Event by event, each of them valid (UPDATE_GOLDEN=1 records anew)."""
    translator, events = _translate(path.read_bytes())
    given_bytes = b"".join(orjson.dumps(event) + b"\n" for event in events)
    expected = GOLDEN / path.name
    if os.environ.get("UPDATE_GOLDEN"):
        expected.parent.mkdir(exist_ok=True)
        expected.write_bytes(given_bytes)
    assert given_bytes == expected.read_bytes()
    assert [event for event in events if not accepts("stream-event", event)] == []
    assert not any(finding.is_damage for finding in translator.findings)


def _completed(data: bytes) -> dict[str, list[dict[str, Any]]]:
    conversations = _reduced(_translate(data)[1]).conversations
    return {
        name: [
            {field: value for field, value in block.items() if field != "usage"}
            for block in blocks
            if not block.get("superseded")
        ]
        for name, blocks in conversations.items()
    }


def _without_partials(data: bytes) -> bytes:
    kept = [line for line in data.split(b"\n") if b'"type":"stream_event"' not in line]
    return b"\n".join(kept)


@every_recording
@settings(max_examples=20, deadline=None)
@given(fraction=st.floats(0, 1))
def test_partial_messages_change_no_block(path: Path, fraction: float) -> None:
    """Wherever the output ends, the whole blocks are those of a run without them."""
    data = path.read_bytes()
    cut = data[: round(len(data) * fraction)]
    cut = cut[: cut.rfind(b"\n") + 1]
    assert _completed(cut) == _completed(_without_partials(cut))


_PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([b"\n", b"{", b"\x00", b'{"type":"result"}\n', b"null\n", b"\xff"]),
)


@settings(max_examples=150, deadline=None)
@given(
    path=st.sampled_from(_RECORDED),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), _PIECES), min_size=1, max_size=4),
)
def test_no_damage_raises_and_every_event_can_be_written(
    path: Path, cuts: list[tuple[float, float, bytes]]
) -> None:
    """Bytes cut out and put in anywhere: the events still fold, and each is plain JSON."""
    data = path.read_bytes()
    for at, width, piece in cuts:
        start = round(at * len(data))
        data = data[:start] + piece + data[start + round(width * 200) :]
    _, events = _translate(data)
    _reduced(events)
    for event in events:
        orjson.dumps(event)


_PARTS = st.sampled_from(
    [_text("x"), {"type": "thinking", "thinking": ""}, call("t1"), call("t2", "Agent"), {}, None]
)
_IDS = st.sampled_from(["m1", "m2", "", None, 1, "\ud800"])
_INDEXES = st.sampled_from([0, 1, -1, "0", None, 2**70])
_LINES = st.one_of(
    st.builds(_began, _IDS),
    st.builds(_part, _INDEXES, _PARTS),
    st.builds(_more, _INDEXES, st.sampled_from(["a", "\ud83d", "\ude80", None, 1])),
    st.builds(
        lambda index, text: _delta(index, type="input_json_delta", partial_json=text),
        _INDEXES,
        st.sampled_from(['{"a":', "1}", "", "[" * 2000, None]),
    ),
    st.builds(_stop, _INDEXES),
    st.builds(_said, st.sampled_from(["u1", "u2", None]), _IDS, _PARTS),
    st.builds(_result),
    st.builds(lambda cut: _line("stream_event", event={}, abandoned_blocks=cut),
              st.sampled_from([None, 1, {"api_message_id": "m1", "from_block_index": "x"}])),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(_LINES, max_size=12))
def test_lines_in_any_order_fold(rows: list[dict[str, Any]]) -> None:
    """No update goes to a block that never began, and none is open at the end unsuperseded."""
    events = _events(*rows)
    reducer = _reduced(events)
    assert [block for _, block in reducer.open_blocks if not block.get("superseded")] == []
    for event in events:
        orjson.dumps(event)


def test_a_block_begins_grows_and_is_completed_by_its_whole_line() -> None:
    """Its end in the stream comes later and means nothing."""
    rows = [_began("m1"), _part(0, _text("")), _more(0, "hel"), _more(0, "lo")]
    events = _events(*rows, _said("u1", "m1", _text("hello")), _stop(0))
    handle = "main/m1/0"
    assert _shape(events)[:4] == [
        ("block_start", handle), ("text_delta", handle), ("text_delta", handle),
        ("block_complete", handle),
    ]  # fmt: skip
    (block,) = _reduced(events).blocks()
    assert (block["id"], block["content"], block["source"]) == ("u1:0", "hello", None)


def test_a_message_that_is_asked_for_again_supersedes_what_had_begun() -> None:
    """Whether it streams again or comes whole; a made-up end completes nothing."""
    broken = [_began("m1"), _part(0, _text("")), _more(0, "hel"), _stop(0)]
    again = [_began("m2"), _part(0, _text("")), _more(0, "hello")]
    whole = _said("u1", "m2", _text("hello"))
    for rows in ([*broken, *again, whole], [*broken, whole]):
        first, second = _reduced(_events(*rows)).blocks()
        assert (first["content"], first["superseded"]) == ("hel", True)
        assert (second["id"], "superseded" in second) == ("u1:0", False)


def test_whole_blocks_of_a_message_that_broke_off_go_with_it() -> None:
    """Unless it had come to its end, or the conversation went on from them."""
    broken = [_began("m1"), _part(0, _text("")), _said("u1", "m1", _text("hello")), _stop(0)]
    ended = _line("stream_event", event={"type": "message_stop"})
    answer = _line("user", uuid="u2", message={"content": [result("t1")]})
    notice = _said("u3", "m3", _text("no"), error="unknown")
    notice["message"]["model"] = "<synthetic>"
    again = _said("u4", "m2", _text("hello"))
    for between, gone in (([], True), ([ended], None), ([answer], None)):
        blocks = _reduced(_events(*broken, *between, again)).blocks()
        assert [b.get("superseded") for b in blocks if b["id"] in ("u1:0", "u4:0")] == [gone, None]
    assert not any(b.get("superseded") for b in _reduced(_events(*broken, notice)).blocks())


def test_parts_of_one_row_have_the_ids_of_their_lines() -> None:
    """The client numbers the lines that it makes of a row in the last digits."""
    uuid = "00000001-0000-4000-8000-00000000abcd"
    parts = [_text("a"), call("t1"), _text("b")]
    stored = parse(lines(said(uuid, None, *parts, id="m1")))
    streamed = [_said(f"{uuid[:24]}{number:012x}", "m1", part) for number, part in enumerate(parts)]
    ids = [block["id"] for block in stored.blocks()]
    assert ids == [block["id"] for block in _reduced(_events(*streamed)).blocks()]
    assert ids[1] == "00000001-0000-4000-8000-000000000001:0"


def test_what_a_command_printed_is_said_to_be_so() -> None:
    """Stdout has it in the model's place, with its facts beside it."""
    facts = {"local_command_source": "<x>", "local_command_run": {"command": "cost", "args": ""}}
    shown = _said("u1", "m1", _text("12 USD"), **facts)
    shown["message"]["model"] = "<synthetic>"
    (block,) = _reduced(_events(shown)).blocks()
    assert block["metadata"] == {
        "event": "local_command_output",
        "commandRun": {"command": "cost", "args": ""},
    }


def test_the_client_says_from_which_block_on_a_message_is_abandoned() -> None:
    """What stands before goes on, and is completed."""
    first, second = _part(0, _text("a")), _part(1, _text("b"))
    cut = {"api_message_id": "m1", "from_block_index": 1}
    stop = _line("stream_event", event={"type": "message_stop"}, abandoned_blocks=cut)
    whole = _said("u1", "m1", _text("a"))
    events = _events(_began("m1"), first, whole, second, stop)
    assert [(block["id"], block.get("superseded")) for block in _reduced(events).blocks()] == [
        ("u1:0", None),
        ("main/m1/1", True),
    ]


def test_a_block_that_is_brought_after_all_is_not_superseded() -> None:
    """A line of another message between them was a notice, not a retry."""
    rows = [_began("m1"), _part(0, _text("")), _said("u1", "m0", _text("x"))]
    events = _events(*rows, _said("u2", "m1", _text("hello")))
    blocks = _reduced(events).blocks()
    assert [(b["id"], b.get("superseded")) for b in blocks] == [("u2:0", None), ("u1:0", None)]


def test_what_had_begun_when_the_output_ends_is_superseded() -> None:
    """A killed client keeps nothing of a message that did not end; a call's input is shown."""
    rows = [_began("m1"), _part(0, call("t1")), _part(1, call("t2")), _part(2, call("t3", "Agent"))]
    rows += [_delta(0, type="input_json_delta", partial_json=piece) for piece in ('{"a"', ":1}")]
    rows += [_delta(1, type="input_json_delta", partial_json='{"a"')]
    blocks = _reduced(_events(*rows)).blocks()
    assert [block["superseded"] for block in blocks] == [True, True, True]
    assert [block["input"] for block in blocks] == [{"a": 1}, '{"a"', ""]


def test_a_character_split_over_two_deltas_is_whole() -> None:
    """A half that stays alone is replaced, since it cannot be written."""
    rows = [_began("m1"), _part(0, _text("")), _more(0, "a\ud83d"), _more(0, "\ude80b\ud83d")]
    rows += [_more(0, "c")]
    deltas = [e["delta"] for e in _events(*rows) if e["type"] == "text_delta"]
    assert "".join(deltas) == "a\U0001f680b\ufffdc"


def test_the_results_tell_what_the_run_spent_so_far() -> None:
    """Cost is the difference of totals, or what the newest versions say outright."""
    usage = {"input_tokens": 5, "output_tokens": 7}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    first = _result(usage=usage, total_cost_usd=0.5, stop_reason="end_turn")
    since = {"m": {"costUSD": 0.25, "inputTokens": 1}}
    second = {
        **_result(usage=usage, total_cost_usd=9, modelUsage=since, terminal_reason="completed"),
        "uuid": "r2",
        "model_usage_since_last_result": since,
    }
    translator, events = _translate(
        lines(_began("m1"), _line("stream_event", event=end), first, second)
    )
    told = [event["metadata"] for event in events if event["type"] == "metadata_update"]
    assert [one["usage"]["totalTokens"] for one in told] == [12, 12, 24]
    assert [one.get("costUSD") for one in told] == [None, 0.5, 0.75]
    assert [one.get("stopReason") for one in told] == ["end_turn", "end_turn", None]
    assert told[2]["terminalReason"] == "completed"
    assert [outcome.cost for outcome in translator.results] == [0.5, 0.25]


def test_a_run_without_a_result_tells_at_least_what_it_spent() -> None:
    """The counts of a message that did not end are lower bounds; a broken result knows less."""
    interrupted = _result(usage={"input_tokens": 0, "output_tokens": 0}, errors=["why"])
    interrupted["subtype"] = "error_during_execution"
    for ending in ([], [interrupted]):
        events = _events(_said("u1", "m1", _text("x")), *ending)
        (told,) = [event["metadata"] for event in events if event["type"] == "metadata_update"]
        assert (told["usage"]["totalTokens"], told["usage"]["exact"]) == (4, False)


def test_outcomes_say_how_a_turn_went() -> None:
    """A success with `is_error` is a failure; init names the model."""
    init = _system("init", model="m")
    failed = _result(result="API Error: 429", api_error_status=429)
    translator, events = _translate(lines(init, {**failed, "is_error": True}))
    (outcome,) = translator.results
    assert (outcome.failed, outcome.api_error_status) == (True, 429)
    assert outcome.reason == "API Error: 429"
    assert {"model": "m"} in [event.get("metadata") for event in events]


def test_a_subagents_lines_are_its_thread_and_its_tasks_drive_its_block() -> None:
    """An update may be the only word that a background agent is over."""
    task = _said("a1", "m1", call("t1", "Agent", prompt="look"))
    started = _system("task_started", task_id="abc1", tool_use_id="t1", task_type="local_agent")
    launched = _line(
        "user",
        uuid="u1",
        message={"content": [result("t1", "launched")]},
        tool_use_result={"status": "async_launched", "agentId": "abc1"},
    )
    inner = {**_said("a2", "m2", _text("seen")), "parent_tool_use_id": "t1"}
    over = _system("task_updated", task_id="abc1", patch={"status": "killed", "error": "why"})
    told = _system("task_notification", task_id="abc1", status="killed", summary="why")
    rows = [task, started, launched, inner]
    for ending in ([over], [told], [over, told]):
        events = _events(*rows, *ending)
        (block,) = [b for b in _reduced(events).blocks() if b["type"] == "subagent"]
        assert (block["subagentId"], block["status"], block["output"]) == ("abc1", "error", "why")
        states = [
            event["updates"]["status"]
            for event in events
            if event["type"] == "block_update" and "status" in event["updates"]
        ]
        assert states == ["running", "error"]
        texts = [block["type"] for block in _reduced(events).blocks("abc1")]
        assert texts == ["system", "assistant_text", "system"]


def test_rows_that_a_line_replaces_are_superseded() -> None:
    """The client names them."""
    second = _said("u2", "m2", _text("y"), supersedes=["u1", "u9", 1])
    blocks = _reduced(_events(_said("u1", "m1", _text("x")), second)).blocks()
    assert [(b["id"], b.get("superseded")) for b in blocks] == [("u1:0", True), ("u2:0", None)]


def test_control_lines_and_statuses_say_nothing() -> None:
    """They are the wire's business, or show only with `hidden`."""
    rows = [
        _line("control_request", request_id="1", request={"subtype": "can_use_tool"}),
        _line("control_response", response={}),
        _line("keep_alive"),
        _line("transcript_mirror", filePath="x", entries=[]),
        _line("rate_limit_event", rate_limit_info={}),
        _line("conversation_reset", new_conversation_id="00000002", trigger="clear"),
        _line("never_heard_of"),
        _system("status", status="requesting"),
    ]
    assert _events(*rows) == []
    assert len(list(ClaudeTranslator(hidden=True).line(lines(rows[-1])))) == 1


def test_noise_is_a_finding_and_the_rest_is_read() -> None:
    """Programs around the client print on its stdout, too."""
    translator = ClaudeTranslator()
    said = lines(_said("u1", "m1", _text("x")))
    events = [*translator.line(b"npm notice\n"), *translator.line(said)]
    assert [event["type"] for event in events] == ["block_complete"]
    assert [finding.id for finding in translator.findings] == ["bad-json"]
