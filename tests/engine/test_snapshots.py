"""Snapshots of a session, what is refused as one, and how far a session has come."""

from __future__ import annotations

import threading
from typing import Any

import orjson
import pytest

from agentsdir.engine.data import set_data
from agentsdir.engine.progress import ProgressFold
from agentsdir.engine.snapshots import check_snapshot, inspection, snapshot
from agentsdir.engine.timeline import Timeline
from agentsdir.formats.blocks import make_block, usage
from agentsdir.formats.errors import Invalid
from agentsdir.formats.store.log import NO_LINE, Record
from agentsdir.schemas import check

pytestmark = pytest.mark.feature("A-04")

NOW = "2026-01-02T03:04:06.000000Z"


def test_a_snapshot_has_what_a_store_of_a_program_keeps(stage: Any) -> None:
    """Its eight keys, by the schema, and it is what `check_snapshot` takes."""
    paths = stage.new()
    stage.send(paths, "one two")
    stage.send(paths, "three")
    set_data(stage.services, paths, "com", {"step": 2})
    set_data(stage.services, paths, "data", {"page": [1]})
    kept = snapshot(Timeline(paths), NOW)
    state = stage.state(paths)
    assert list(kept) == [
        *("version", "sessionId", "tick", "timeline"),
        *("comState", "dataCache", "usage", "timestamp"),
    ]
    assert [block["content"] for block in kept.pop("timeline")] == [
        *("one two", "one two"),
        *("three", "three"),
    ]
    assert kept == {
        "version": 1,
        "sessionId": state.session.id,
        "tick": 2,
        "comState": {"step": 2},
        "dataCache": {"page": [1]},
        "usage": state.usage,
        "timestamp": NOW,
    }
    assert check("session-snapshot", snapshot(Timeline(paths), NOW)) == []


def test_a_snapshot_is_of_one_point_of_the_log_while_others_write(stage: Any) -> None:
    """What stands in comState was recorded before each block of the timeline that says so."""
    paths = stage.new()
    timeline = Timeline(paths)
    done = threading.Event()

    def write() -> None:
        for step in range(60):
            set_data(stage.services, paths, "com", {"step": step})
            block = make_block(
                "assistant_text", f"b{step}", "main", "s", None, None, content=str(step)
            )
            stage.append(paths, "block", {"turn_id": None, "block": block})
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        kept = snapshot(timeline, NOW)
        said, step = len(kept["timeline"]), kept["comState"].get("step", -1)
        assert step in (said - 1, said)
        assert kept["tick"] == min(said, 1)
    writer.join()
    assert len(snapshot(timeline, NOW)["timeline"]) == 60


def test_a_snapshot_is_a_copy(stage: Any) -> None:
    """A callback may change it as it likes."""
    paths = stage.new()
    stage.send(paths, "hi")
    set_data(stage.services, paths, "com", {"deep": [1]})
    timeline = Timeline(paths)
    kept = snapshot(timeline, NOW)
    kept["comState"]["deep"].append(2)
    kept["timeline"][0]["content"] = "changed"
    kept["usage"]["inputTokens"] = -1
    again = snapshot(timeline, NOW)
    assert again["comState"] == {"deep": [1]}
    assert again["timeline"][0]["content"] == "hi"
    assert again["usage"]["inputTokens"] == 1


def test_a_snapshot_of_a_foreign_log_can_be_kept(stage: Any) -> None:
    """What no document may hold is cleaned, as in state.json."""
    paths = stage.new()
    deep: Any = []
    for _ in range(140):
        deep = [deep]
    block = {"type": "tool_use", "id": "x", "conversationId": "main", "input": [2**60, deep]}
    line = {
        "seq": 2,
        "ts": NOW,
        "event": "block",
        "session_id": stage.state(paths).session.id,
        "data": {"turn_id": None, "block": block},
        "prev": stage.state(paths).position.last_hash,
    }
    with paths.log.open("ab") as log:
        log.write(orjson.dumps(line) + b"\n")
    kept = snapshot(Timeline(paths), NOW)
    assert kept["timeline"][0]["input"][0] == str(2**60)
    assert check_snapshot(kept) is kept


# What is refused.

GOOD = {
    "version": 1,
    "sessionId": "5f0c1a7be1b94c0f9a52d3f7e2c48d61",
    "tick": 0,
    "timeline": [],
    "comState": {},
    "dataCache": {},
    "usage": usage(0, 0),
    "timestamp": NOW,
}


def test_keys_that_a_runner_adds_are_kept() -> None:
    """They are the program's."""
    assert check_snapshot({**GOOD, "runner": {"x": 1}})["runner"] == {"x": 1}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({**GOOD, "version": 2}, "has version 2, and this program reads version 1"),
        ({**GOOD, "version": True}, "no object with a version"),
        ({**GOOD, "version": "1.0"}, "no object with a version"),
        ({}, "no object with a version"),
        (None, "no object with a version"),
        ([GOOD], "no object with a version"),
        ({key: value for key, value in GOOD.items() if key != "tick"}, "tick is missing"),
        ({**GOOD, "tick": True}, "tick is no integer"),
        ({**GOOD, "tick": -1}, "tick is below 0"),
        ({**GOOD, "comState": None}, "comState is no object"),
        ({**GOOD, "timeline": ["hi"]}, "an entry that is no block"),
        ({**GOOD, "timeline": [{"type": "user_message", "id": 1}]}, "an entry that is no block"),
        ({**GOOD, "timestamp": "yesterday"}, "timestamp is no time: 'yesterday'"),
        ({**GOOD, "dataCache": {"x": {1, 2}}}, "a set is no plain JSON type"),
        ({**GOOD, "mine": float("nan")}, "nan is no JSON number"),
    ],
)
def test_what_is_no_snapshot_of_this_version_is_refused(value: Any, said: str) -> None:
    """By one kind, and the message says why."""
    with pytest.raises(Invalid) as raised:
        check_snapshot(value)
    assert raised.value.kind == "bad-snapshot"
    assert said in raised.value.message


# How far a session has come.


def record(event: str, **data: Any) -> Record:
    """Return a record."""
    return Record(1, NOW, event, "s", data, NO_LINE)


def said(turn: str | None, kind: str, block_id: str, **fields: Any) -> Record:
    """Return the record of a block."""
    conversation = fields.pop("conversation", "main")
    block = make_block(kind, block_id, conversation, "s", None, None, **fields)
    return record("block", turn_id=turn, block=block)


def call(turn: str, use: str, **fields: Any) -> Record:
    """Return the record of a tool's call."""
    return said(turn, "tool_use", f"c{use}", toolUseId=use, **fields)


TALK = [
    record("turn.start", turn_id="t1"),
    said("t1", "user_message", "p1", content="hi"),
    said("t1", "thinking", "h1", content="", messageId="m1"),
    call("t1", "u1", messageId="m1", status="pending"),
    said("t1", "tool_result", "r1", toolUseId="u1"),
    call("t1", "u1", messageId="m1", status="success"),
    said("t1", "assistant_text", "a1", content="done", messageId="m2"),
    said("t1", "assistant_text", "a2", content="of a subagent", conversation="sub"),
    record("transcript.synced", files=[{"role": "stream", "path": "s/turn-1.stream"}]),
    record("turn.complete", turn_id="t1", response="done"),
]


def progress(records: list[Record]) -> Any:
    """Return how far records have come."""
    fold = ProgressFold()
    for one in records:
        fold.take(one)
    return fold.progress()


def test_calls_of_the_model_and_of_tools_are_counted_by_turn() -> None:
    """A block that is logged again counts once, a subagent's not at all."""
    seen = progress(TALK)
    assert (seen.current_tick, seen.tick_count, seen.last_output) == (2, 2, "done")
    assert [block["status"] for block in seen.last_tool_calls] == ["success"]
    assert [block["id"] for block in seen.last_tool_results] == ["r1"]
    assert seen.recording == "s/turn-1.stream"


def test_a_turn_that_runs_is_the_last_one() -> None:
    """Its calls stand in place of those of the turn before; the answer is still that one's."""
    seen = progress([*TALK, record("turn.start", turn_id="t2"), call("t2", "u2", messageId="m3")])
    assert (seen.current_tick, seen.tick_count, seen.last_output) == (1, 3, "done")
    assert [block["id"] for block in seen.last_tool_calls] == ["cu2"]
    assert (seen.last_tool_results, seen.recording) == ([], None)


def test_what_was_superseded_is_no_call_of_the_turn() -> None:
    """Nor what the client logged without a turn, though the model was called."""
    seen = progress(
        [
            record("turn.start", turn_id="t1"),
            call("t1", "u1", messageId="m1", superseded=True),
            said(None, "tool_use", "c2", toolUseId="u2", messageId="m2"),
        ]
    )
    assert (seen.current_tick, seen.tick_count, seen.last_tool_calls) == (1, 2, [])


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"block": None},
        {"block": []},
        {"block": {"conversationId": "main"}},
        {"block": {"conversationId": "main", "id": "x", "type": []}},
        {"files": [None, {"role": 1}, {"role": "stream"}]},
        {"files": 7},
        {"response": 7, "turn_id": []},
    ],
)
def test_records_of_a_foreign_writer_do_no_harm(data: dict[str, Any]) -> None:
    """Whatever their data is."""
    for event in ("turn.start", "block", "transcript.synced", "turn.complete"):
        assert progress([record(event, **data)]).last_output is None


def test_an_inspection_is_read_on_in_the_log(stage: Any) -> None:
    """The second look has what came since."""
    paths = stage.new()
    timeline = Timeline(paths)
    assert inspection(timeline).as_json() == {
        "currentTick": 0,
        "tickCount": 0,
        "lastOutput": None,
        "lastToolCalls": [],
        "lastToolResults": [],
        "totalUsage": usage(0, 0),
        "recording": None,
    }
    stage.send(paths, "one two")
    seen = inspection(timeline)
    assert (seen.current_tick, seen.tick_count, seen.last_output) == (1, 1, "one two")
    assert seen.total_usage == stage.state(paths).usage
