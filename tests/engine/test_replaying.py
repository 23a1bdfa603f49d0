"""A recorded session as events, and as a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.engine.replay import replay, settled, state_at
from agentsdir.engine.slots import resume, suspend
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.errors import ProviderError, UsageError
from agentsdir.formats.findings import Finding
from agentsdir.formats.store import derived
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.log import END, NO_LINE, Cursor, line_hash, parse_cursor
from agentsdir.schemas import check


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


@pytest.mark.feature("S-04", "C-06")
@pytest.mark.parametrize("script", [*SCRIPTS, "echo"])
def test_the_log_alone_holds_every_prompt_and_all_that_was_answered(
    stage: Any, script: str
) -> None:
    """Where it is the only file that is left, transcripts included."""
    paths = stage.new() if script == "echo" else stage.script(script)
    stage.send(paths, "one")
    stage.send(paths, "two")
    whole = replayed(paths)
    for path in sorted(paths.folder.rglob("*"), reverse=True):
        if path.is_dir():
            path.rmdir()
        elif path != paths.log:
            path.unlink()
    assert replayed(paths) == whole
    blocks = [event["block"] for event in whole if "block" in event]
    asked = [b["content"] for b in blocks if b["type"] == "user_message"]
    assert [text for text in asked if text in ("one", "two")] == ["one", "two"]


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
    from agentsdir.formats.store.log import append_record

    paths = stage.new()
    state = stage.state(paths)
    append_record(paths.log, state.position, "block", data, stage.now(), state.session.id, Disk())
    assert list(replay(paths, lambda finding: None)) == []


def at(paths: Any, text: str) -> list[str]:
    """Return the types of the events up to a point."""
    return [event["type"] for event in replay(paths, lambda finding: None, parse_cursor(text))]


@pytest.mark.feature("C-06", "S-04")
def test_the_state_at_each_record_is_that_of_a_log_that_ends_there(
    stage: Any, tmp_path: Path
) -> None:
    """By its number, for a session with everything in it, and the same as a reader folds."""
    paths = stage.script("tools.jsonl")
    stage.send(paths, "one")
    suspend(stage.services, paths)
    resume(stage.services, paths)
    stage.enqueue(paths, "three")
    lines = paths.log.read_bytes().splitlines(keepends=True)
    for number in range(1, len(lines) + 1):
        folder = tmp_path / str(number) / paths.id
        folder.mkdir(parents=True)
        (folder / "events.jsonl").write_bytes(b"".join(lines[:number]))
        cut = read_agent(AgentPaths(folder, paths.id), whole=True).state
        document, findings = state_at(paths, parse_cursor(str(number)))
        assert (document, findings) == (derived.state_document(cut), [])
        assert check("state", document) == []
    assert len(lines) > 12


@pytest.mark.feature("C-06")
def test_the_state_without_a_point_is_state_json(stage: Any) -> None:
    """And so is the one at any number beyond the end."""
    paths = stage.new()
    stage.send(paths)
    stored = orjson.loads(paths.state.read_bytes())
    for point in (
        END,
        parse_cursor("99"),
        parse_cursor("9" * 5000),
        parse_cursor("2999-01-01T00:00:00Z"),
    ):
        assert state_at(paths, point) == (stored, [])
    paths.state.write_bytes(b"{}")
    assert state_at(paths) == (stored, [])


@pytest.mark.feature("C-06")
def test_a_replay_stops_after_the_record_with_the_number(stage: Any) -> None:
    """What was said later is not shown."""
    paths = stage.new()
    stage.send(paths, "one")
    stage.send(paths, "two")
    blocks = [record["seq"] for record in stage.log(paths) if record["event"] == "block"]
    for count, seq in enumerate(blocks, 1):
        assert at(paths, str(seq)).count("block_complete") == count
        assert at(paths, str(seq - 1)).count("block_complete") == count - 1


def rewrite(paths: Any, change: Any) -> None:
    """Write the log anew from changed records, whose `prev` fits; None leaves one out."""
    lines: list[bytes] = []
    for line in paths.log.read_bytes().splitlines():
        record = change(orjson.loads(line))
        if record is not None:
            record["prev"] = line_hash(lines[-1]) if lines else NO_LINE
            lines.append(orjson.dumps(record))
    paths.log.write_bytes(b"".join(line + b"\n" for line in lines))


def test_a_missing_number_is_passed_by_the_next_record(stage: Any) -> None:
    """A gap does no harm: the record after it ends the replay, and tells of the loss."""
    paths = stage.new()
    stage.send(paths, "one")
    first = next(record["seq"] for record in stage.log(paths) if record["event"] == "block")
    rewrite(paths, lambda record: None if record["seq"] == first else record)
    findings: list[Finding] = []
    events = list(replay(paths, findings.append, parse_cursor(str(first))))
    assert [event["block"]["type"] for event in events] == ["assistant_text"]
    assert [finding.id for finding in findings] == ["seq-gap"]
    assert list(replay(paths, findings.append, parse_cursor(str(first - 1)))) == []
    assert len(findings) == 1


@pytest.mark.feature("C-06")
def test_a_time_ends_the_replay_before_the_first_record_that_is_later(stage: Any) -> None:
    """The record of that very moment belongs to it, in whatever offset the moment is said."""
    paths = stage.new()
    stage.send(paths, "one")
    records = stage.log(paths)
    for number, record in enumerate(records, 1):
        document, _ = state_at(paths, parse_cursor(record["ts"]))
        assert document["lastSeq"] == number
    moment = records[-1]["ts"]
    elsewhere = moment.replace("T03:", "t05:").replace("Z", "+02:00")
    assert state_at(paths, parse_cursor(elsewhere))[0]["lastSeq"] == len(records)


def test_a_clock_that_jumped_does_not_reorder_what_is_replayed(stage: Any) -> None:
    """The first later record decides, and one without a usable time decides nothing."""
    paths = stage.new()
    stage.send(paths, "one")

    def jump(record: dict[str, Any]) -> dict[str, Any]:
        ahead = {4: "2030-01-01T00:00:00.000000Z", 3: "yesterday", 2: "2026-01-02T03:04:05"}
        return {**record, "ts": ahead.get(record["seq"], record["ts"])}

    rewrite(paths, jump)
    assert state_at(paths, parse_cursor("2029-01-01T00:00:00Z"))[0]["lastSeq"] == 3
    assert state_at(paths, parse_cursor("2031-01-01T00:00:00Z"))[0]["lastSeq"] > 4


def test_before_its_first_record_an_agent_has_no_state(stage: Any) -> None:
    """And nothing to play."""
    paths = stage.new()
    with pytest.raises(UsageError, match="not there yet") as error:
        state_at(paths, parse_cursor("1999-12-31T23:59:59Z"))
    assert stage.log(paths)[0]["ts"] in str(error.value.hint)
    assert at(paths, "1999-12-31T23:59:59Z") == []


NO_POINTS = (
    *("0", "000", "", "-1", "+1", "1.5", "\u0661", "1e3", "1\n", "now"),
    *("2026-01-02", "2026-01-02T03:04:05", "2026-02-30T00:00:00Z", "2026-01-02T03:04:60Z"),
    "0001-01-01T00:00:00+01:00",
)


@pytest.mark.parametrize("text", NO_POINTS)
def test_what_is_neither_a_number_nor_a_time_is_refused(text: str) -> None:
    """With what a time looks like, or from where numbers count."""
    with pytest.raises(UsageError):
        parse_cursor(text)


def test_damage_is_reported_as_far_as_the_log_is_read(stage: Any) -> None:
    """What stands beyond the point is not looked at then."""
    paths = stage.new()
    stage.send(paths, "one")
    lines = paths.log.read_bytes().splitlines(keepends=True)
    lines[4] = b"\0" * 20 + b"\n"
    paths.log.write_bytes(b"".join(lines) + b"torn")
    for seq, wanted in ((4, []), (6, ["nul-run", "seq-gap", "chain-break"])):
        findings: list[Finding] = []
        list(replay(paths, findings.append, parse_cursor(str(seq))))
        assert [finding.id for finding in findings][: len(wanted)] == wanted
        assert [f.id for f in state_at(paths, parse_cursor(str(seq)))[1]] == [
            finding.id for finding in findings
        ]
        assert "torn-tail" not in [finding.id for finding in findings]


def test_a_log_cut_short_is_reported_at_its_end_only(stage: Any) -> None:
    """An earlier point does not need what state.json remembers."""
    paths = stage.new()
    stage.send(paths, "one")
    lines = paths.log.read_bytes().splitlines(keepends=True)
    paths.log.write_bytes(b"".join(lines[:-2]))
    assert [finding.id for finding in state_at(paths)[1]] == ["log-shorter"]
    assert state_at(paths, parse_cursor("3"))[1] == []


def test_settled_gives_each_block_once_in_its_first_place(stage: Any) -> None:
    """As it was in the end, or at the point that was asked for."""
    paths = stage.new()
    stage.send(paths, "one")
    answer = next(
        event["block"]
        for event in replay(paths, [].append)
        if event.get("block", {}).get("type") == "assistant_text"
    )
    stage.send(paths, "two")
    stage.append(paths, "block", {"turn_id": None, "block": {**answer, "content": "changed"}})

    def said(until: Cursor = END) -> list[str]:
        events = replay(paths, [].append, until)
        text = "".join(
            settled(events, lambda event: event.get("block", {}).get("content", "") + "|")
        )
        return [said for said in text.split("|") if said]

    assert said() == ["one", "changed", "two", "two"]
    last = stage.state(paths).position.last_seq
    assert said(parse_cursor(str(last - 1))) == ["one", "one", "two", "two"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef") | st.none(),
            st.text(st.characters(exclude_categories=()), max_size=5),
        ),
        max_size=30,
    )
)
def test_settled_is_a_matter_of_places_and_last_texts(said: list[tuple[str | None, str]]) -> None:
    """Whatever the texts hold, and whichever blocks come again; what is no block stays."""
    events = [
        {"text": text, **({"block": {"conversationId": "main", "id": key}} if key else {})}
        for key, text in said
    ]
    wanted: dict[Any, str] = {}
    for number, (key, text) in enumerate(said):
        wanted[key or number] = text

    found = settled(events, lambda event: str(event["text"]))

    assert "".join(found) == "".join(wanted.values())
