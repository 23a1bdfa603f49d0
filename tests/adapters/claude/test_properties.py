"""What holds for every input, shaped or shapeless."""

import json
from typing import Any

import pytest
from claude_support import FIXTURES, balanced, lines, parse
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.feature("B-06")

_REAL = [
    line + b"\n"
    for path in sorted(FIXTURES.glob("*.jsonl"))
    if not path.name.endswith(".blocks.jsonl")
    for line in path.read_bytes().split(b"\n")
    if line and len(line) < 4000
]
_WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "system",
        "attachment",
        "progress",
        "queue-operation",
        "last-prompt",
        "result",
        "summary",
        "text",
        "thinking",
        "tool_use",
        "tool_result",
        "image",
        "init",
        "compact_boundary",
        "api_error",
        "local_command",
        "enqueue",
        "dequeue",
        "remove",
        "popAll",
        "queued_command",
        "agent_progress",
        "Task",
        "Agent",
        "Bash",
        "main",
        "t1",
        "t2",
        "a1",
        "a2",
        "abc",
        "task_started",
        "task_notification",
        "human",
        "task-notification",
        "<synthetic>",
        "completed",
        "<task-notification>",
        "<command-name>",
    ]
)
_KEYS = st.sampled_from(
    [
        "type",
        "uuid",
        "parentUuid",
        "logicalParentUuid",
        "isSidechain",
        "agentId",
        "sessionId",
        "session_id",
        "timestamp",
        "message",
        "content",
        "id",
        "name",
        "input",
        "text",
        "thinking",
        "signature",
        "tool_use_id",
        "is_error",
        "toolUseResult",
        "usage",
        "input_tokens",
        "stop_reason",
        "model",
        "subtype",
        "attachment",
        "prompt",
        "commandMode",
        "operation",
        "leafUuid",
        "data",
        "parentToolUseID",
        "parent_tool_use_id",
        "origin",
        "kind",
        "promptSource",
        "isMeta",
        "status",
        "isCompactSummary",
        "version",
        "error",
        "errors",
        "result",
        "hookErrors",
        "task_id",
        "duration_ms",
        "source",
    ]
)
_SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6)
)
_VALUES = st.recursive(
    _SCALARS | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)
_ROWS = st.fixed_dictionaries(
    {"type": _WORDS | _VALUES},
    optional={
        "uuid": _WORDS | _VALUES,
        "parentUuid": _WORDS | _VALUES,
        "message": st.dictionaries(_KEYS, _VALUES, max_size=5) | _VALUES,
        "subtype": _WORDS | _VALUES,
        "operation": _WORDS | _VALUES,
        "content": _VALUES,
        "attachment": st.dictionaries(_KEYS, _VALUES, max_size=4) | _VALUES,
        "isSidechain": st.booleans() | _VALUES,
        "agentId": _WORDS,
        "sessionId": _VALUES,
        "session_id": _VALUES,
        "parent_tool_use_id": _WORDS,
        "toolUseResult": _VALUES,
        "data": _VALUES,
        "origin": _VALUES,
        "usage": _VALUES,
    },
)


@given(st.lists(_ROWS | st.dictionaries(_KEYS, _VALUES, max_size=6), max_size=8), st.booleans())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_rows_of_any_shape_are_survived(rows: list[dict[str, Any]], hidden: bool) -> None:
    """Any field may be missing, null or of another type; every line is accounted for."""
    sink = parse(lines(*rows), hidden=hidden)
    assert balanced(sink)
    assert sink.tally.lines == len(rows)
    ids = [block["id"] for block in sink.blocks("all")]
    assert len(ids) == len(set(ids))


@given(
    st.lists(st.sampled_from(_REAL), min_size=1, max_size=6),
    st.data(),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_mutated_real_rows_are_survived(picked: list[bytes], data: st.DataObject) -> None:
    """A real row with one value replaced, anywhere in it."""
    rows = []
    for line in picked:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        spot = value
        while isinstance(spot, dict) and spot:
            key = data.draw(st.sampled_from(sorted(spot)))
            if not isinstance(spot[key], dict) or data.draw(st.booleans()):
                spot[key] = data.draw(_VALUES)
                break
            spot = spot[key]
        rows.append(value)
    assert balanced(parse(lines(*rows), hidden=True))


@given(st.lists(st.sampled_from(_REAL) | st.binary(max_size=60), max_size=8), st.booleans())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_parsing_twice_gives_the_same(pieces: list[bytes], hidden: bool) -> None:
    """No clock, no chance: the bytes decide alone, and every line is accounted for."""
    data = b"".join(pieces)
    first, second = parse(data, hidden=hidden), parse(data, hidden=hidden)
    assert list(first.lines("all")) == list(second.lines("all"))
    assert balanced(first)


@given(st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_a_file_cut_anywhere_keeps_every_record_before_the_cut(data: st.DataObject) -> None:
    """What was written whole is read whole, whatever comes after."""
    names = ["hello-2.1.98", "parallel-2.1.98", "tools-1.0.128", "subagent-1.0.128"]
    whole = (FIXTURES / f"{data.draw(st.sampled_from(names))}.jsonl").read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    kept = whole[: whole.rfind(b"\n", 0, cut) + 1]
    # A prompt that waits in the queue goes when the row that takes it out is there, too.
    before = {block["id"] for block in parse(kept).blocks("all") if block["id"][0] != "h"}
    after = {block["id"] for block in parse(whole[:cut]).blocks("all")}
    assert before <= after
    assert balanced(parse(whole[:cut]))


@given(st.lists(_ROWS, max_size=6))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_hidden_blocks_change_nothing_about_the_others(rows: list[dict[str, Any]]) -> None:
    """Asking for them adds them, and counts each line as before."""
    data = lines(*rows)
    plain, full = parse(data), parse(data, hidden=True)
    visible = [block for block in full.blocks("all") if not block.get("hidden")]
    assert list(plain.blocks("all")) == visible
    assert plain.tally.as_json() == full.tally.as_json()
