"""A session read row by row gives the blocks of the whole, whatever the order among its files."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
from claude_support import FIXTURES, SESSION, SINGLE, call, lines, reader, result, said, user

from agentsdir.adapters.claude.discover import head_rows
from agentsdir.adapters.claude.sessions import SessionParser, sidecar, thread_name
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.rows import LineFeed, Tally
from agentsdir.formats.sink import LiveSink, ParseSink
from agentsdir.formats.source import Source

pytestmark = pytest.mark.feature("B-01")


def _folded(events: list[dict[str, Any]]) -> Reducer:
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    return reducer


def _grow(*rows: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the events while the rows of one file came, and those of its end."""
    sink = LiveSink()
    parser = SessionParser(sink)
    main = parser.open("s.jsonl")
    feed = LineFeed("s.jsonl", sink.tally, sink.finding)
    events = []
    for data in lines(*rows).splitlines(keepends=True):
        for row in feed.rows(data):
            main.take(row)
        parser.settle()
        events += sink.drain()
    parser.finish()
    return events, sink.drain()


def _comparable(block: dict[str, Any]) -> dict[str, Any]:
    """Leave out that a block is not superseded, which a live stream may say."""
    return {name: value for name, value in block.items() if (name, value) != ("superseded", False)}


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: path.name)
def test_row_by_row_gives_the_blocks_of_the_whole(path: Path) -> None:
    """All fixtures: the main file and its children interleaved at random, stated after each row."""
    paths = [path] if path.is_file() else sorted(path.rglob("*.jsonl"))
    sources = [Source(str(found.relative_to(FIXTURES)), path=found) for found in paths]
    (files,) = reader().discover(sources)
    whole = ParseSink(hidden=True)
    reader().parse_transcripts(files, whole)

    sink = LiveSink(hidden=True)
    parser = SessionParser(sink)
    waiting = []
    for transcript in files.transcripts:
        source = transcript.source
        heads = list(head_rows(source.head()))
        thread = thread_name(heads, source.name) if transcript.role == "subagent" else None
        session = next((head["sessionId"] for head in heads if "sessionId" in head), "")
        main = parser.open(
            source.name, thread=thread, session=session, meta=sidecar(transcript.sidecar)
        )
        feed = LineFeed(source.name, sink.tally, sink.finding)
        waiting.append((main, feed, io.BytesIO(source.read()).readlines()))
    chosen = random.Random(path.name)
    events: list[dict[str, Any]] = []
    while waiting := [entry for entry in waiting if entry[2]]:
        main, feed, left = chosen.choice(waiting)
        for row in feed.rows(left.pop(0)):
            main.take(row)
        parser.settle()
        events += sink.drain()
    parser.finish()
    events += sink.drain()

    expected: dict[str, list[dict[str, Any]]] = {}
    for block in whole.blocks("all"):
        expected.setdefault(block["conversationId"], []).append(block)
    given = _folded(events).conversations
    assert set(given) == set(expected)
    for name, blocks in expected.items():
        assert [_comparable(block) for block in given[name]] == blocks
    assert sink.tally.as_json() == whole.tally.as_json()
    assert sorted(map(str, sink.findings)) == sorted(map(str, whole.findings))
    assert sink.client_version == whole.client_version
    links = {name: (one.parent, one.link) for name, one in sink.conversations.items()}
    assert links == {name: (one.parent, one.link) for name, one in whole.conversations.items()}


def test_a_call_is_pending_until_its_result_comes() -> None:
    """And what was said is not said again, at the end neither."""
    events, end = _grow(
        user("u1", None, "go"),
        said("a1", "u1", call("t1")),
        user("u2", "a1", [result("t1", is_error=True)]),
        user("u3", "u2", "thanks"),
    )
    about = [event for event in events + end if event.get("blockId") == "a1:0"]
    assert [event["type"] for event in about[:2]] == ["block_complete", "block_update"]
    assert about[0]["block"]["status"] == "pending"
    assert about[1]["updates"] == {"status": "error"}
    assert [set(event["updates"]) for event in about[2:]] == [{"usage"}]


def test_a_rewind_supersedes_at_once_and_may_be_taken_back() -> None:
    """The second prompt beside the first replaces it, until a note names the first one again."""
    first, second = user("u1", None, "one"), user("u2", "u0", "two")
    root = user("u0", None, "root")
    note = {"type": "last-prompt", "leafUuid": "u1", "sessionId": SESSION}
    events, _ = _grow(root, {**first, "parentUuid": "u0"}, second, note)
    updates = [
        (event["blockId"], event["updates"]) for event in events if event["type"] == "block_update"
    ]
    assert updates == [
        ("u1:0", {"superseded": True}),
        ("u2:0", {"superseded": True}),
        ("u1:0", {"superseded": False}),
    ]


def test_a_notice_ends_a_background_agent_before_the_file_ends() -> None:
    """It runs from its answer on, and its block is updated twice."""
    native = {"agentId": "abc1", "status": "async_launched"}
    notice = (
        "<task-notification><task-id>abc1</task-id><status>completed</status>"
        "<result>seen</result></task-notification>"
    )
    events, _ = _grow(
        said("a1", None, call("t1", "Agent", prompt="look")),
        user("u1", "a1", [result("t1", "launched")], toolUseResult=native),
        user("u2", "u1", notice, origin={"kind": "task-notification"}),
    )
    states = [
        event["updates"]["status"]
        for event in events
        if event["type"] == "block_update" and "status" in event["updates"]
    ]
    assert states == ["running", "success"]


def test_hidden_blocks_are_dropped_unless_wanted() -> None:
    """Bookkeeping gives no event."""
    events, _ = _grow({"type": "mode", "mode": "x", "sessionId": SESSION}, user("u1", None, "go"))
    assert [event["blockId"] for event in events] == ["u1:0"]


def test_lines_over_the_cap_are_named_and_the_count_goes_on() -> None:
    """Whether the line was read or passed over."""
    found: list[Any] = []
    tally = Tally()
    feed = LineFeed("f", tally, found.append, cap=8)
    assert list(feed.rows(b'{"a":"too long"}\n')) == []
    assert list(feed.rows(100)) == []
    (row,) = feed.rows(b'{"a":1}\n')
    assert (row.line, row.offset) == (3, 117)
    assert [finding.id for finding in found] == ["oversize", "oversize"]
    assert (tally.lines, tally.damaged) == (3, 2)


def test_a_guess_is_taken_back_when_the_call_names_another_agent() -> None:
    """Statement by statement, a thread is linked as if all rows had been there from the start."""
    inner = {**user("s1", None, "look"), "isSidechain": True, "agentId": "abc1"}
    rows = (
        said("a1", None, call("t1", "Agent", prompt="look")),
        inner,
        user("u1", "a1", [result("t1")], toolUseResult={"agentId": "abc9"}),
    )
    events, end = _grow(*rows)
    told = [
        event["metadata"]["link"]
        for event in events + end
        if event["type"] == "metadata_update" and "link" in event["metadata"]
    ]
    assert [link["method"] for link in told] == ["prompt", "none"]
    (block,) = [b for b in _folded(events + end).blocks() if b["type"] == "subagent"]
    assert block["subagentId"] == "abc9"
