"""Nothing is left out in silence: what is hidden, folded or superseded has a reason and a block."""

from __future__ import annotations

from typing import Any

import pytest
from claude_support import FIXTURES, SINGLE, call, lines, parse, reader, result, row, said, user

from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

pytestmark = [pytest.mark.feature("B-01")]

FIRST = user("u1", None, "go", promptSource="typed")
# Rows of kinds that no client is known to write, and what the remark calls them.
UNKNOWN = {
    "row 'tomorrow'": {"type": "tomorrow", "sessionId": "s"},
    "row 'morrow'": row("morrow", "x1", "u1"),
    "row 'without type'": {"sessionId": "s", "uuid": "x2"},
    "subtype 'tomorrow'": row("system", "x1", "u1", subtype="tomorrow"),
    "subtype 'task_tomorrow'": row("system", "x1", "u1", subtype="task_tomorrow"),
    "attachment 'tomorrow'": row("attachment", "x1", "u1", attachment={"type": "tomorrow"}),
    "attachment 'without type'": row("attachment", "x1", "u1", attachment={}),
    "progress 'tomorrow'": row("progress", "x1", "u1", data={"type": "tomorrow"}),
    "queue operation 'tomorrow'": {
        "type": "queue-operation", "operation": "tomorrow", "sessionId": "s",
    },
    "part 'tomorrow'": said("x1", "u1", {"type": "tomorrow"}),
    "part 'int'": user("x1", "u1", [7]),
    "part 'morrow'": user("x1", "u1", [result("t1"), {"type": "morrow"}]),
}  # fmt: skip


@pytest.mark.parametrize("label", UNKNOWN)
def test_an_unknown_kind_is_named_once_with_its_count_and_version(label: str) -> None:
    """Whatever it is a kind of; the first row that has it is the place."""
    once = UNKNOWN[label]
    twice = {**once, "uuid": "x9"} if "uuid" in once else once
    for hidden in (False, True):
        sink = parse(lines(FIRST, once, twice), hidden=hidden)
        (remark,) = sink.drifts.findings()
        assert remark.message == f"{label}: unknown, x 2 (client 2.1.98)"
        assert remark.line == 2


@pytest.mark.parametrize("label", [name for name in UNKNOWN if "morrow'" not in name[:6]])
def test_a_hidden_row_of_an_unknown_kind_says_so_in_the_reasons(label: str) -> None:
    """And it is a block under `--hidden`."""
    sink = parse(lines(FIRST, UNKNOWN[label]), hidden=True)
    if not sink.tally.hidden:  # an unknown part beside what shows
        assert label == "part 'morrow'"
    else:
        assert sink.tally.hidden_by == {"unknown": 1}
    assert [block["source"]["line"] for block in sink.blocks() if block.get("hidden")] == [2]


def test_a_part_of_an_unknown_kind_is_named_beside_what_shows() -> None:
    """The row is not hidden, a part of it is."""
    sink = parse(lines(FIRST, said("a1", "u1", "words", {"type": "tomorrow"})))
    assert sink.tally.hidden == 0
    assert [finding.id for finding in sink.drifts.findings()] == ["drift"]


HIDDEN: dict[str, dict[str, Any]] = {
    "attachment": row("attachment", "x1", "u1", attachment={"type": "skill_listing"}),
    "bookkeeping": {"type": "custom-title", "customTitle": "t", "sessionId": "s"},
    "control": {"type": "keep_alive", "sessionId": "s"},
    "empty": user("x1", "u1", []),
    "filler": said("x1", "u1", "No response requested.", model="<synthetic>"),
    "injected": user("x1", "u1", "r", promptSource="system"),
    "meta": user("x1", "u1", "context", isMeta=True),
    "part": said("x1", "u1", {"type": "container_upload", "file_id": "f"}),
    "partial-message": {"type": "stream_event", "event": {}, "sessionId": "s"},
    "progress": row("progress", "x1", "u1", data={"type": "bash_progress"}),
    "rate-limit": {"type": "rate_limit_event", "rate_limit_info": {}, "session_id": "s"},
    "system": row("system", "x1", "u1", subtype="turn_duration"),
}


@pytest.mark.parametrize("reason", HIDDEN)
def test_a_hidden_row_is_counted_by_its_cause(reason: str) -> None:
    """The report says why, and a known kind is no drift."""
    sink = parse(lines(FIRST, HIDDEN[reason]), hidden=True)
    assert sink.tally.hidden_by == {reason: 1}
    assert not sink.drifts
    assert [block["source"]["line"] for block in sink.blocks() if block.get("hidden")] == [2]


def test_a_folded_row_is_counted_by_its_cause() -> None:
    """A repetition, an entry of the queue, a result that a subagent's call has, a copied row."""
    agent = call("t1", "Task", prompt="look", description="d")
    main = lines(
        {"type": "queue-operation", "operation": "enqueue", "content": "go", "sessionId": "s"},
        {"type": "queue-operation", "operation": "dequeue", "sessionId": "s"},
        FIRST,
        FIRST,
        said("a1", "u1", agent),
        user("r1", "a1", [result("t1")], toolUseResult={"agentId": "abc1", "status": "completed"}),
    )
    child = {**user("s1", None, "look"), "isSidechain": True, "agentId": "abc1"}
    sink = parse(main, lines({**FIRST, "isSidechain": True, "agentId": "abc1"}, child))
    by = sink.tally.folded_by
    assert by.pop("queue") + by["repeated"] == 3
    assert by == {"repeated": 1, "subagent-result": 1, "copy": 1}


def _left(*rows: dict[str, Any]) -> dict[str, int]:
    return parse(lines(*rows)).superseded_by()


def test_a_superseded_block_is_counted_by_its_cause() -> None:
    """A branch that was left, and an answer that a second client did not see."""
    other = user("u2", None, "rather", promptSource="typed")
    assert _left(FIRST, said("a1", "u1", "ok"), other) == {"rewind": 2}
    filler = said("f1", "u1", "No response requested.", model="<synthetic>")
    more = user("u2", "f1", "more", promptSource="typed")
    assert _left(FIRST, filler, said("a1", "u1", "late"), more) == {"overtaken": 1}


def test_what_a_subagent_did_before_it_was_started_anew_is_a_broken_attempt() -> None:
    """Its first row stands again."""
    main = lines(FIRST, said("a1", "u1", call("t1", "Task", prompt="look")))
    own = {"isSidechain": True, "agentId": "abc1"}
    first, answer = {**user("s1", None, "look"), **own}, {**said("s2", "s1", "half"), **own}
    again = {**said("s3", "s1", "whole"), **own}
    sink = parse(main, lines(first, answer, first, again))
    assert sink.superseded_by() == {"broken-attempt": 1}


def _sessions() -> list[ParseSink]:
    sinks = []
    for path in SINGLE:
        found = [path] if path.is_file() else sorted(path.rglob("*.jsonl"))
        for files in reader().discover([Source(one.name, path=one) for one in found]):
            sink = ParseSink(hidden=True)
            reader().parse_transcripts(files, sink)
            sinks.append(sink)
    return sinks


def test_every_hidden_line_of_the_fixtures_has_a_block_and_no_known_kind_is_drift() -> None:
    """Made and recorded ones."""
    assert FIXTURES.is_dir()
    drifts = set()
    for sink in _sessions():
        hidden = {
            (block["source"]["file"], block["source"]["line"])
            for block in sink.blocks("all")
            if block.get("hidden")
        }
        assert len(hidden) >= sink.tally.hidden - sink.tally.hidden_by.get("blank", 0)
        drifts |= {finding.file for finding in sink.drifts.findings()}
    # The two that have rows of kinds that were made up.
    assert drifts == {"unknown-chained-row.jsonl", "restore_junk-2.1.98.jsonl"}
