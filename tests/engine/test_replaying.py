"""A recorded session as events, and as a script."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agentsdir.engine.replaying import replay
from agentsdir.formats.directory.durability import Disk
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.reducer import Reducer


def replayed(paths: Any) -> list[dict[str, Any]]:
    """Replay a session whose log is sound."""
    findings: list[Finding] = []
    events = list(replay(paths, findings.append))
    assert findings == []
    return events


def conversations(events: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Reduce events to what parity compares: id, type, content, pairing, conversation."""
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    ignored = ("timestamp", "source", "usage")
    return {
        name: [{k: v for k, v in block.items() if k not in ignored} for block in blocks]
        for name, blocks in reducer.conversations.items()
    }


SCRIPTS = ("tools.jsonl", "subagent.jsonl", "thinking.jsonl")


@pytest.mark.feature("C-06", "B-05")
@pytest.mark.parametrize("script", [*SCRIPTS, "echo"])
def test_a_replay_gives_the_blocks_that_were_streamed(stage: Any, script: str) -> None:
    """In every conversation, in order, with the same ids."""
    paths = stage.new() if script == "echo" else stage.script(script)
    streamed = stage.streamed(paths, "one") + stage.streamed(paths, "two")
    assert conversations(replayed(paths)) == conversations(streamed)


@pytest.mark.feature("C-06")
def test_a_replay_is_block_grained_with_recorded_times(stage: Any) -> None:
    """One completed block for each record, one metadata update for each completed turn."""
    paths = stage.script("tools.jsonl")
    stage.send(paths)
    events = replayed(paths)
    assert [event["type"] for event in events] == ["block_complete"] * 4 + ["metadata_update"]
    times = [e["ts"] for e in stage.log(paths) if e["event"] in ("block", "turn.complete")]
    assert [event["timestamp"] for event in events] == times
    assert events[-1]["metadata"]["stopReason"] == "end_turn"
    assert events[-1]["metadata"]["usage"]["totalTokens"] == 120


@pytest.mark.feature("C-06", "G-03")
@pytest.mark.parametrize("script", [*SCRIPTS, "echo"])
def test_a_replay_played_as_a_script_gives_the_same_answers(
    stage: Any, tmp_path: Any, script: str
) -> None:
    """A recorded session is a fake provider."""
    paths = stage.new() if script == "echo" else stage.script(script)
    answers = [stage.send(paths, text).response for text in ("one", "two")]
    talk = tmp_path / "talk.jsonl"
    talk.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in replayed(paths)))
    copy = stage.script(str(talk))
    assert [stage.send(copy, text).response for text in ("x", "y")] == answers
    with pytest.raises(ProviderError):
        stage.send(copy, "z")


def test_what_send_streamed_played_as_a_script_gives_the_same_answer(
    stage: Any, tmp_path: Any
) -> None:
    """Deltas included."""
    events = stage.streamed(stage.script("tools.jsonl"), "one")
    talk = tmp_path / "talk.jsonl"
    talk.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    again = stage.streamed(stage.script(str(talk)), "two")
    assert [event["type"] for event in again] == [event["type"] for event in events]


def test_damage_is_reported_and_the_rest_is_replayed(stage: Any) -> None:
    """It never ends the replay."""
    paths = stage.new()
    stage.send(paths, "one")
    stage.send(paths, "two")
    lines = paths.log.read_bytes().splitlines(keepends=True)
    hit = next(n for n, line in enumerate(lines) if b'"event":"block"' in line)
    lines[hit] = b"\0" * 20 + b"\n"
    paths.log.write_bytes(b"".join(lines))
    findings: list[Finding] = []
    events = list(replay(paths, findings.append))
    assert [f.id for f in findings][:1] == ["nul-run"]
    assert len([e for e in events if e["type"] == "block_complete"]) == 3


@pytest.mark.parametrize("data", [{}, {"block": None}, {"block": {}}, {"block": []}])
def test_a_block_record_without_a_block_is_passed_over(stage: Any, data: dict[str, Any]) -> None:
    """A log of another writer may hold it."""
    from agentsdir.formats.directory.journal import append_record

    paths = stage.new()
    state = stage.state(paths)
    append_record(paths.log, state.position, "block", data, stage.now(), state.session.id, Disk())
    assert list(replay(paths, lambda finding: None)) == []
