"""Blocks at hand, and diff a session again without repeating what was told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.formats import blocks
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.diff import BlockStore, EmittedDiff
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
    assert book.apply(blocks.block_start("a", block("a", message=""))) is None
    assert book.apply(update("a", status="x")) is None
    assert book.apply(complete("a", message="m")) == block("a", message="m")
    assert book.apply(update("a", status="x")) == block("a", message="m", status="x")
    assert book["main", "a"] == block("a", message="m", status="x")
    assert list(book) == [("main", "a")]


def test_only_the_difference_is_told_again() -> None:
    """New, changed, gone and come back; nothing that is as it was."""
    diff = EmittedDiff()
    first = [complete("a"), complete("b", message="1"), complete("c", output="x"), complete("d")]
    assert list(diff.emit(first)) == first
    assert list(diff.finish_again()) == []

    diff.start_again()
    assert (
        list(
            diff.emit(
                [
                    complete("a"),
                    complete("b"),
                    update("b", message="2"),
                    complete("c"),
                    complete("e"),
                ]
            )
        )
        == []
    )
    assert list(diff.finish_again()) == [
        update("b", message="2"),
        complete("c"),  # a field went, which no update can say
        complete("e"),
        update("d", superseded=True),
    ]

    diff.start_again()
    list(diff.emit([complete(name) for name in "acde"] + [complete("b", message="2")]))
    assert list(diff.finish_again()) == [update("d", superseded=False)]


def test_a_block_may_be_stated_as_often_as_one_likes() -> None:
    """It is told when it is new, and then only what changed of it."""
    diff = EmittedDiff()
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
    diff = EmittedDiff()
    list(diff.emit([complete(name) for name in "abc"]))
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
def test_whoever_reduces_what_is_told_has_what_was_told_last(diffs: list[list[Any]]) -> None:
    """However often a session is told again, and however it differs."""
    diff, heard, last = EmittedDiff(), Reducer(), Reducer()
    for number, events in enumerate(diffs):
        if number:
            diff.start_again()
        last = Reducer()
        for event in events:
            last.apply(event)
        for event in [*diff.emit(events), *diff.finish_again()]:
            heard.apply(event)
    stands = {
        one["id"]: {name: value for name, value in one.items() if name != "superseded"}
        for one in heard.blocks()
        if not one.get("superseded")
    }
    assert stands == {one["id"]: one for one in last.blocks()}
