"""Stream events to blocks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.blocks import (
    Reducer,
    block_complete,
    block_start,
    block_update,
    metadata_update,
    text_delta,
)
from agentsdir.formats.errors import Invalid


def text(block_id: str, content: str, conversation: str = "main", **more: Any) -> dict[str, Any]:
    """Return a text block."""
    return {
        "type": "assistant_text",
        "id": block_id,
        "conversationId": conversation,
        "content": content,
        **more,
    }


def tool(block_id: str, status: str) -> dict[str, Any]:
    """Return a tool block."""
    return {
        "type": "tool_use",
        "id": block_id,
        "conversationId": "main",
        "toolName": "Read",
        "toolUseId": "t1",
        "input": {"file": "config.json"},
        "status": status,
    }


RESULT = {
    "type": "tool_result",
    "id": "result-1",
    "conversationId": "main",
    "toolUseId": "t1",
    "output": {"a": 1},
    "isError": False,
}


def reduced(events: list[dict[str, Any]]) -> Reducer:
    """Fold a list of events."""
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    return reducer


@pytest.mark.feature("B-05")
def test_the_example_of_the_design_gives_its_three_blocks() -> None:
    """The ten events of the seed's streaming flow, in order, state after state."""
    reducer = Reducer()
    states = []
    for event in [
        block_start("txt-1", text("txt-1", "")),
        text_delta("txt-1", "I'll", "main"),
        text_delta("txt-1", " read", "main"),
        text_delta("txt-1", " the file", "main"),
        block_complete("txt-1", text("txt-1", "I'll read the file")),
        block_start("tool-1", tool("tool-1", "pending")),
        block_update("tool-1", {"status": "running"}, "main"),
        block_complete("tool-1", tool("tool-1", "success")),
        block_complete("result-1", RESULT),
        metadata_update({"usage": {"inputTokens": 100}, "costUSD": 0.05}, "main"),
    ]:
        touched = reducer.apply(event)
        states.append(touched and touched.get("content", touched.get("status")))
    assert states == [
        "",
        "I'll",
        "I'll read",
        "I'll read the file",
        "I'll read the file",
        "pending",
        "running",
        "success",
        None,
        None,
    ]
    assert reducer.blocks() == [
        text("txt-1", "I'll read the file"),
        tool("tool-1", "success"),
        RESULT,
    ]
    assert reducer.metadata == {"main": {"usage": {"inputTokens": 100}, "costUSD": 0.05}}


@pytest.mark.feature("B-05")
@given(st.text(), st.lists(st.integers(0, 30), max_size=5))
def test_start_deltas_and_complete_leave_what_complete_alone_leaves(
    content: str, cuts: list[int]
) -> None:
    """However the text was cut into deltas."""
    edges = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    pieces = [content[a:b] for a, b in pairwise(edges)]
    final = text("b", content, model="m")
    streamed = [block_start("h", text("b", ""))]
    streamed += [text_delta("h", piece, "main") for piece in pieces]
    before = reduced(streamed).blocks()[0]["content"]
    assert before == content
    streamed.append(block_complete("h", final))
    assert reduced(streamed).blocks() == reduced([block_complete("h", final)]).blocks()


def test_a_block_stands_where_it_was_first_seen() -> None:
    """Completing an earlier one later does not move it."""
    reducer = reduced(
        [
            block_start("a", text("1", "")),
            block_complete("b", text("2", "two")),
            block_complete("a", text("1", "one")),
        ]
    )
    assert [block["content"] for block in reducer.blocks()] == ["one", "two"]


def test_the_same_durable_id_under_another_handle_is_the_same_block() -> None:
    """A stream that repeats a block amends it."""
    reducer = reduced(
        [
            block_complete("a", text("1", "one")),
            block_complete("b", text("2", "two")),
            block_complete("c", text("1", "ONE")),
            text_delta("c", "!", "main"),
        ]
    )
    assert [block["content"] for block in reducer.blocks()] == ["ONE!", "two"]


def test_conversations_are_kept_apart() -> None:
    """The same handle and id in two threads are two blocks."""
    reducer = reduced(
        [
            block_complete("a", text("1", "main one")),
            block_complete("a", text("1", "child one", "child")),
            metadata_update({"model": "x"}, "child"),
        ]
    )
    assert {name: len(blocks) for name, blocks in reducer.conversations.items()} == {
        "main": 1,
        "child": 1,
    }
    assert reducer.metadata == {"child": {"model": "x"}}


def test_folding_does_not_change_the_events() -> None:
    """A caller may keep or print them afterwards."""
    start = block_start("a", text("1", ""))
    reduced([start, text_delta("a", "x", "main"), block_update("a", {"k": 1}, "main")])
    assert start["block"] == text("1", "")


def test_metadata_of_one_conversation_is_merged() -> None:
    """The last value of each name stands."""
    reducer = reduced(
        [
            metadata_update({"model": "a", "costUSD": 1}, "main"),
            metadata_update({"costUSD": 2}, "main"),
        ]
    )
    assert reducer.metadata["main"] == {"model": "a", "costUSD": 2}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "block_end", "blockId": "a", "conversationId": "main"},
        {"conversationId": "main"},
        text_delta("nobody", "x", "main"),
        block_update("nobody", {"status": "error"}, "main"),
        text_delta("a", "x", "child"),
    ],
    ids=["unknown type", "no type", "delta without start", "update without start", "wrong thread"],
)
def test_an_event_that_fits_nothing_is_refused(event: dict[str, Any]) -> None:
    """With its own kind, and the blocks stay as they were."""
    reducer = reduced([block_complete("a", text("1", "one"))])
    with pytest.raises(Invalid) as refused:
        reducer.apply(event)
    assert refused.value.kind == "bad-event"
    assert reducer.blocks() == [text("1", "one")]


@pytest.mark.parametrize("delta", [5, None, ["x"]])
def test_a_delta_that_is_no_text_takes_nothing_away(delta: Any) -> None:
    """What was said before it stays in the block."""
    reducer = Reducer()
    reducer.apply(block_start("h", text("b", "")))
    reducer.apply(text_delta("h", "half of it ", "main"))

    with pytest.raises(TypeError):
        reducer.apply({"type": "text_delta", "blockId": "h", "delta": delta})

    assert reducer.blocks()[0]["content"] == "half of it "
