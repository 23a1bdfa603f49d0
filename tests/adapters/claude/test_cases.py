"""Each shape that was read wrongly once is a fixture, and this is what is right."""

from __future__ import annotations

from typing import Any

import pytest
from claude_support import FIXTURES, reader

from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

pytestmark = [pytest.mark.feature("B-01"), pytest.mark.feature("B-06")]

# What each conversation says, live and in order: words as `speaker: text`, other blocks as their
# type, and system blocks as their event.
RIGHT: dict[str, list[str]] = {
    "acompact-copies": [
        "user: go", "assistant: a long answer", "compaction", "compact_summary",
        "user: go on", "assistant: fine",
    ],
    "json-task-notice": [
        "user: Build it beside our work.", "tool_use", "tool_result", "assistant: It builds.",
        "task_notification", "user: How far is it?", "assistant: It is built.",
        'user: {"task_id": "b7", "title": "mine"}', "assistant: That is no task of ours.",
    ],
    "leaf-newest-row": [
        "user: one", "assistant: answer one", "user: two", "tool_use", "tool_result",
        "assistant: Published at last.",
    ],
    "queued-and-never-sent": [
        "user: Which branch?", "user: And is it clean?", "assistant: The main one.",
        "user: List its files.", "assistant: There are two.",
    ],
    "rewritten-row": [
        "user: Name one colour.", "assistant: Red, I would say.", "user: And a fruit?",
        "assistant: A pear.",
    ],
    "rewound-by-command-named-leaf": [
        "user: one", "assistant: r1", "local_command", "assistant: deployed",
    ],
    "rewound-command-stays-live": [
        "user: one", "assistant: answer one", "user: two instead", "assistant: answer two",
    ],
    "snapshot-first": ["user: say hello", "assistant: hello"],
    "steering-removed": [
        "user: Mend the parser.", "tool_use", "tool_result", "user: Are there tests?",
        "assistant: No, there are none.",
    ],
    "teammates": [
        "user: make a team", "subagent", "subagent", "assistant: both run", "peer_message",
        "assistant: fine",
    ],
    "unknown-chained-row": ["user: hi", "tool_use", "tool_result", "assistant: done"],
    "waiting-out-of-order": [
        "user: Begin.", "user: This one waits.", "user: This one is sent first.",
        "assistant: Done.",
    ],
    "words-beside-a-result": [
        "user: Mend the parser.", "tool_use", "tool_result",
        "user: and run the tests before you go on", "assistant: I run them now.",
    ],
}  # fmt: skip


def _parse(name: str) -> ParseSink:
    path = FIXTURES / name
    paths = sorted(path.rglob("*.jsonl")) if path.is_dir() else [FIXTURES / f"{name}.jsonl"]
    found = [Source(str(one.relative_to(FIXTURES)), path=one) for one in paths]
    (files,) = reader().discover(found)
    sink = ParseSink()
    reader().parse_transcripts(files, sink)
    return sink


def _said(block: dict[str, Any]) -> str:
    kind = block["type"]
    if kind == "system":
        return str(block["metadata"]["event"])
    speaker = {"user_message": "user", "assistant_text": "assistant"}.get(kind)
    return f"{speaker}: {block['content']}" if speaker else kind


@pytest.mark.parametrize("name", RIGHT)
def test_a_shape_that_was_read_wrongly_is_read_as_the_client_has_it(name: str) -> None:
    """Who said what, in which order, and nothing that the client left."""
    blocks = [block for block in _parse(name).blocks() if block["conversationId"] == "main"]
    assert [_said(block) for block in blocks] == RIGHT[name]


def test_rows_that_a_compaction_agent_repeats_count_once() -> None:
    """Blocks and tokens: two of its four rows are the main transcript's."""
    sink = _parse("acompact-copies")
    assert sink.tally.folded_by == {"copy": 2}
    assert sink.usage()["totalTokens"] == 2178


def test_teammates_are_tied_to_their_calls_by_name() -> None:
    """One reported, so its call is over; the other never did."""
    sink = _parse("teammates")
    calls = {block["subagentId"]: block for block in sink.blocks() if block["type"] == "subagent"}
    states = {name: block["status"] for name, block in calls.items()}
    assert states == {"acli-tester-00000002": "running", "aserver-tester-00000001": "success"}
    assert sink.findings == []


def test_a_parent_of_an_unknown_kind_is_no_missing_one() -> None:
    """What is new is named as new."""
    sink = _parse("unknown-chained-row")
    assert sink.findings == []
    assert {finding.id for finding in sink.drifts.findings()} == {"drift"}
