"""Blocks at hand, and diff a session again without repeating what was emitted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.formats import blocks
from agentsdir.formats.block_lines import WHOLE, BlockStore, line_of
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.diff import EmittedDiff
from agentsdir.formats.source import RecordSpool


def block(name: str, **fields: Any) -> dict[str, Any]:
    """Return a block; its type does not matter here."""
    return {"type": "system", "id": name, "conversationId": "main", **fields}


def complete(name: str, **fields: Any) -> dict[str, Any]:
    """Return the event that completes a block."""
    return blocks.block_complete(name, block(name, **fields))


def update(name: str, **fields: Any) -> dict[str, Any]:
    """Return the event that changes a block."""
    return blocks.block_update(name, fields, "main")


NAMES = "abcdefgh"


def emit(diff: EmittedDiff, events: list[Any]) -> list[Any]:
    """Give a diff some events, with the lines of their blocks; return what it passes on."""
    lines = [
        (("main", event["blockId"]), line_of(event["block"]) or b"")
        for event in events
        if "block" in event
    ]
    return list(diff.emit(events, lines))


def test_records_of_any_number_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were gathered for the scratch file, those that are there, and in between."""
    monkeypatch.setattr("agentsdir.formats.source.CHUNK", 64)
    spool, records = RecordSpool(0), [bytes([65 + n]) * (n % 9 + 1) for n in range(50)]
    kept = []
    for number, record in enumerate(records):
        kept.append(spool.add(record))
        if number % 7 == 0:
            assert spool.read(kept[-1]) == record
            assert spool.read(kept[number // 2]) == records[number // 2]
    assert [spool.read(one) for one in kept] == records


@pytest.mark.parametrize("limit", [0, 8, 1000])
def test_records_come_back_in_any_order(limit: int) -> None:
    """From memory and from the scratch file."""
    spool = RecordSpool(limit)
    records = [str(n).encode() * n for n in range(1, 20)]
    kept = [spool.add(record) for record in records]
    assert [spool.read(one) for one in reversed(kept)] == records[::-1]


def test_a_book_holds_each_block_as_it_stands() -> None:
    """What has merely begun is not in it, nor changed by an update."""
    book = BlockStore()
    book.apply(blocks.block_start("a", block("a", message="")))
    book.apply(update("a", status="x"))
    assert ("main", "a") not in book
    book.apply(complete("a", message="m"))
    assert book["main", "a"] == block("a", message="m")
    book.apply(update("a", status="x"))
    assert book["main", "a"] == block("a", message="m", status="x")


CHANGES = st.lists(
    st.one_of(
        st.builds(complete, st.sampled_from(NAMES), message=st.sampled_from(["", "x" * 99])),
        st.builds(update, st.sampled_from(NAMES), message=st.sampled_from("xy")),
        st.builds(update, st.sampled_from(NAMES), status=st.sampled_from("xy")),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(CHANGES, st.lists(st.sampled_from(NAMES)), st.integers(1, 5), st.integers(0, 300))
def test_a_store_gives_blocks_as_events_leave_them_in_any_order(
    events: list[Any], asked: list[str], recent: int, in_memory: int
) -> None:
    """Whether a block is recent, in memory or in the scratch file when it changes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("agentsdir.formats.block_lines.RECENT", recent)
        patch.setattr("agentsdir.formats.block_lines.RECENT_LINE", 150)
        patch.setattr("agentsdir.formats.block_lines.IN_MEMORY", in_memory)
        patch.setattr("agentsdir.formats.source.CHUNK", 64)
        store, known = BlockStore(), {}
        for event in events:
            store.apply(event)
            name = event["blockId"]
            if event["type"] == "block_complete":
                known[name] = event["block"]
            elif name in known:
                known[name] = {**known[name], **event["updates"]}
        names = [name for name in asked if name in known]
        expected = b"".join(line_of(known[name]) or b"" for name in names)
        assert b"".join(store.pieces([("main", name) for name in names])) == expected
        assert all(store["main", name] == value for name, value in known.items())


def test_a_store_says_what_changed_since_it_was_asked() -> None:
    """In the order of the first change; whatever did not change is left out."""
    store = BlockStore()
    for event in (complete("a"), complete("b"), update("a", status="x")):
        store.apply(event)
    changes = store.changes()
    assert list(changes.items()) == [(("main", "a"), WHOLE | {"status"}), (("main", "b"), WHOLE)]
    assert store.changes() == {}
    for event in (update("b", status="x"), update("b", message="m"), update("c", status="x")):
        store.apply(event)
    assert store.changes() == {("main", "b"): {"status", "message"}}


def test_only_the_difference_is_emitted_again() -> None:
    """New, changed, gone and come back; nothing that is as it was."""
    store = BlockStore()
    diff = EmittedDiff(store)
    first = [complete("a"), complete("b", message="1"), complete("c", output="x"), complete("d")]
    assert emit(diff, first) == first
    assert list(diff.finish_again()) == []

    diff.start_again()
    again = [complete("a"), complete("b"), update("b", message="2"), complete("c"), complete("e")]
    assert emit(diff, again) == []
    assert list(diff.finish_again()) == [
        update("b", message="2"),
        complete("c"),  # a field went, which no update can say
        complete("e"),
        update("d", superseded=True),
    ]
    assert {key[1]: fields for key, fields in store.changes().items()} == {
        "a": WHOLE,
        "b": WHOLE | {"message"},
        "c": WHOLE,
        "d": WHOLE | {"superseded"},
        "e": WHOLE,
    }

    diff.start_again()
    emit(diff, [complete(name) for name in "acde"] + [complete("b", message="2")])
    assert list(diff.finish_again()) == [update("d", superseded=False)]


def test_a_block_may_be_stated_as_often_as_one_likes() -> None:
    """It is emitted when it is new, and then only what changed of it."""
    diff = EmittedDiff(BlockStore())
    assert list(diff.restate(block("a", message="1"))) == [complete("a", message="1")]
    assert list(diff.restate(block("a", message="1"))) == []
    assert list(diff.restate(block("a", message="2"))) == [update("a", message="2")]
    assert list(diff.amend(("main", "a"), status="x")) == [update("a", status="x")]
    assert list(diff.amend(("main", "a"), status="x")) == []
    assert list(diff.amend(("main", "b"), status="x")) == []
    superseded = block("a", message="2", status="x", superseded=True)
    assert list(diff.restate(superseded)) == [update("a", superseded=True)]
    assert list(diff.restate(block("a", message="2", status="x"))) == [
        update("a", superseded=False)
    ]
    assert list(diff.restate(block("a", message="2"))) == [complete("a", message="2")]


def test_what_an_incomplete_reading_lacks_is_gone_only_at_the_end() -> None:
    """Unless it is stated after all."""
    diff = EmittedDiff(BlockStore())
    emit(diff, [complete(name) for name in "abc"])
    diff.start_again()
    assert list(diff.restate(block("a"))) == []
    assert list(diff.finish_again(whole=False)) == []
    assert list(diff.restate(block("b"))) == []
    assert list(diff.close()) == [update("c", superseded=True)]
    assert list(diff.close()) == []


EVENTS = st.lists(
    st.one_of(
        st.builds(complete, st.sampled_from("abcd"), message=st.sampled_from("xy")),
        st.builds(update, st.just("a"), status=st.sampled_from("xy")),
    ),
    max_size=8,
).map(lambda events: [complete("a"), *events])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(EVENTS, min_size=1, max_size=4))
def test_a_reducer_of_what_is_emitted_has_what_was_read_last(diffs: list[list[Any]]) -> None:
    """However often a session is read again, and however it differs."""
    diff, heard, last = EmittedDiff(BlockStore()), Reducer(), Reducer()
    for number, events in enumerate(diffs):
        if number:
            diff.start_again()
        last = Reducer()
        for event in events:
            last.apply(event)
        for event in [*emit(diff, events), *diff.finish_again()]:
            heard.apply(event)
    stands = {
        one["id"]: {name: value for name, value in one.items() if name != "superseded"}
        for one in heard.blocks()
        if not one.get("superseded")
    }
    assert stands == {one["id"]: one for one in last.blocks()}
