"""Where readers put what they read."""

from __future__ import annotations

import io
import tempfile
from typing import Any

import orjson
import pytest

from agentsdir.formats import sink as sink_module
from agentsdir.formats import source as spool_module
from agentsdir.formats.blocks import usage
from agentsdir.formats.findings import Finding
from agentsdir.formats.sink import DROPPED, Link, ParseSink
from agentsdir.formats.source import ByteSpool, LineSpool, Source


def block(block_id: str, content: Any = "x", **more: Any) -> dict[str, Any]:
    """Return a text block."""
    return {
        "type": "assistant_text",
        "id": block_id,
        "conversationId": "main",
        "sessionId": "s",
        "timestamp": None,
        "content": content,
        **more,
    }


def ids(sink: ParseSink, view: Any = "live") -> list[str]:
    """Return the ids of a view."""
    return [one["id"] for one in sink.blocks(view)]


def test_blocks_come_out_as_they_went_in() -> None:
    """In order, key by key, one line each."""
    sink = ParseSink()
    given = [block("1"), block("2", conversationId="child"), block("3", usage=usage(1, 2))]
    for one in given:
        sink.add(one)
    assert list(sink.blocks()) == given
    assert [line.count(b"\n") for line in sink.lines()] == [1, 1, 1]
    assert list(sink.conversations) == ["main", "child"]


def test_late_facts_join_their_block_on_the_way_out() -> None:
    """In several steps, and after other blocks were added."""
    sink = ParseSink()
    first = sink.add(block("1"))
    sink.add(block("2"))
    sink.amend(first, status="success")
    sink.amend(first, usage=usage(1, 2), durationMs=5)
    assert list(sink.blocks()) == [
        block("1", status="success", usage=usage(1, 2), durationMs=5),
        block("2"),
    ]


def test_an_amendment_that_says_nothing_leaves_the_line_whole() -> None:
    """No stray comma gets into the JSON."""
    sink = ParseSink()
    sink.amend(sink.add(block("1")))
    assert list(sink.blocks()) == [block("1")]


def test_superseded_blocks_are_in_the_view_of_all_only() -> None:
    """Marked there, and counted there."""
    sink = ParseSink()
    handles = [sink.add(block(name)) for name in ("1", "2", "3")]
    sink.supersede(handles[1], "rewind")
    sink.amend(handles[1], late=True)
    assert ids(sink) == ["1", "3"]
    assert list(sink.blocks("all"))[1] == block("2", late=True, superseded=True)
    assert sink.counts() == {("main", "assistant_text"): 2}
    assert sink.counts("all") == {("main", "assistant_text"): 3}
    sink.supersede(handles[1], "duplicate")
    sink.supersede(handles[2], "duplicate")
    assert sink.superseded_by() == {"rewind": 1, "duplicate": 1}


def test_one_block_is_what_the_view_of_all_has() -> None:
    """Held back or written, amended, reworded, moved and superseded."""
    sink = ParseSink()
    handles = [sink.add(block(str(number))) for number in range(40)]
    sink.amend(handles[1], late=True)
    sink.supersede(handles[1], "rewind")
    sink.reword(handles[2], "assistant_text", "other")
    sink.amend(handles[39], status="success")
    sink.move(handles[5], handles[0], 0)
    shown = [handle for run in sink.shown() for handle in run]
    assert shown[:2] == [5, 0]
    assert list(map(sink.block, shown)) == list(sink.blocks("all"))


def test_the_views_can_be_read_again_and_again() -> None:
    """Reading uses nothing up."""
    sink = ParseSink()
    sink.add(block("1"))
    assert ids(sink) == ids(sink) == ids(sink, "all") == ["1"]


def test_unwanted_hidden_blocks_are_dropped_and_their_handle_does_nothing() -> None:
    """Amending or superseding them is harmless."""
    sink = ParseSink()
    handle = sink.add(block("1", hidden=True))
    assert handle == DROPPED
    sink.amend(handle, status="x")
    sink.supersede(handle, "rewind")
    sink.add(block("2"))
    assert ids(sink, "all") == ["2"]
    wanting = ParseSink(hidden=True)
    wanting.add(block("1", hidden=True))
    assert ids(wanting) == ["1"]


def test_a_block_that_cannot_be_written_exactly_says_so() -> None:
    """Lone surrogates, big integers and deep nesting are cleaned and named."""
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    sink = ParseSink()
    sink.add(block("1", "a\ud800"))
    sink.add(block("2", input={"n": 2**70}))
    sink.add(block("3", type="tool_use", input=deep))
    sink.amend(sink.add(block("4")), output="\udfff")
    first, second, third, fourth = sink.blocks()
    assert (first["content"], first["lossy"]) == ("a\ufffd", ["lone-surrogate"])
    assert (second["input"], second["lossy"]) == ({"n": str(2**70)}, ["big-integer"])
    assert third["lossy"] == ["too-deep"]
    assert (fourth["output"], fourth["lossy"]) == ("\ufffd", ["lone-surrogate"])


def test_usage_is_summed_by_conversation_and_over_all() -> None:
    """Each thread keeps its own."""
    sink = ParseSink()
    sink.use("main", usage(1, 2))
    sink.use("child", usage(10, 20, exact=False))
    sink.use("main", usage(100, 200))
    assert sink.conversations["main"].usage["totalTokens"] == 303
    assert sink.usage()["totalTokens"] == 333
    assert not sink.usage()["exact"]


def test_a_conversation_keeps_the_link_and_parent_it_was_given() -> None:
    """Opening it again without them forgets nothing."""
    sink = ParseSink()
    sink.conversation("child", parent="main", link=Link("sidecar", "exact"))
    sink.conversation("child")
    thread = sink.conversations["child"]
    assert (thread.parent, thread.link) == ("main", Link("sidecar", "exact"))


def test_only_errors_and_warnings_are_damage() -> None:
    """A remark does not change the exit code."""
    sink = ParseSink()
    sink.finding(Finding("empty-file", "f", "empty"))
    assert not sink.damaged
    sink.finding(Finding("torn-tail", "f", "torn", 1, 0, 5))
    assert sink.damaged


def test_more_than_the_memory_limit_spills_to_a_file_and_reads_the_same() -> None:
    """Eighteen blocks of a mebibyte are more than stay in memory."""
    sink = ParseSink()
    for number in range(18):
        sink.add(block(str(number), "x" * 2**20))
    assert ids(sink) == [str(number) for number in range(18)]
    assert sum(map(len, sink.lines())) > 18 * 2**20


@pytest.mark.parametrize("limit", [0, 1, 5, 6, 1000])
def test_a_spool_gives_back_its_lines_whether_or_not_it_spilled(limit: int) -> None:
    """Also when it is written to after it was read, from memory or from a file."""
    spool = LineSpool(limit)
    spool.add(b"abc\n")
    assert b"".join(spool.pieces()) == b"abc\n"
    spool.add(b"de\n")
    assert b"".join(spool.pieces()) == b"".join(spool.pieces()) == b"abc\nde\n"


@pytest.mark.parametrize("limit", [0, 6, 1000])
@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_a_spool_gives_back_any_run_of_lines(
    limit: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From memory, from a file, from both."""
    monkeypatch.setattr(spool_module, "CHUNK", chunk)
    spool = LineSpool(limit)
    given = [b"a" * size + b"\n" for size in (3, 1, 9, 2, 0, 7)]
    for line in given:
        spool.add(line)
    assert len(spool) == len(given)
    for begin in range(len(given) + 1):
        for end in range(begin, len(given) + 1):
            assert b"".join(spool.pieces(begin, end)) == b"".join(given[begin:end])
    assert [spool.line(number) for number in range(len(given))] == given


@pytest.mark.parametrize("held", [1, 2, 3, 100])
@pytest.mark.parametrize("limit", [9, 10])
def test_what_comes_late_is_the_same_for_blocks_held_back_and_for_written_ones(
    held: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields stand in the order in which they were stated, and may be taken back."""
    monkeypatch.setattr(sink_module, "HELD", held)
    monkeypatch.setattr(sink_module, "HELD_ROW", limit)
    source = {"file": "f", "line": 1, "offset": 0, "length": 10}
    sink = ParseSink()
    first, second = sink.add(block("1", source=source)), sink.add(block("2"))
    third = sink.add(block("\udc80", source=source))
    for handle in (first, third):
        sink.amend(handle, status="success")
    sink.amend(second, usage=usage(1, 2))
    sink.add(block("4", "x" * 50))
    sink.retract(second, "usage")
    assert sink.reword(first, "assistant_text", "other words")
    sink.amend(second, durationMs=5)
    for handle in (first, third):
        sink.amend(handle, usage=usage(3, 4))
    sink.supersede(second, "rewind")

    late = {"status": "success", "usage": usage(3, 4)}
    assert list(sink.blocks("all")) == [
        block("1", "other words", source=source) | late,
        block("2") | {"durationMs": 5, "superseded": True},
        block("\ufffd", source=source) | {"lossy": ["lone-surrogate"]} | late,
        block("4", "x" * 50),
    ]
    shown = list(sink.blocks("all"))
    assert list(shown[0])[-2:] == ["status", "usage"]
    assert list(shown[2])[-3:] == ["lossy", "status", "usage"]
    assert ids(sink) == ["1", "\ufffd", "4"]


def test_arranged_blocks_are_shown_in_their_order_and_no_others() -> None:
    """A block that was written again is not counted twice."""
    sink = ParseSink()
    for name in ("1", "2 as it was", "3", "2"):
        sink.add(block(name))
    sink.supersede(2, "rewind")
    sink.arrange([range(1), range(3, 4)])
    assert ids(sink) == ["1", "2"]
    sink.arrange([range(2, 3)])
    assert ids(sink, "all") == ["1", "2", "3"]
    assert sink.counts() == {("main", "assistant_text"): 2}


@pytest.mark.parametrize("limit", [0, 1, 9, 10, 1000])
def test_a_byte_spool_can_be_opened_again(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From memory or from a file."""
    monkeypatch.setattr(spool_module, "CHUNK", 3)
    spool = ByteSpool(io.BytesIO(b"0123456789"), limit)
    assert spool.open().read() == spool.open().read() == b"0123456789"


def test_a_stream_is_spooled_once_and_opened_often(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Standard input too can be looked at first and read afterwards."""
    monkeypatch.setattr(spool_module, "CHUNK", 4)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stdin = Source.from_stream("-", io.BytesIO(b"0123456789"))
    assert stdin.head(3) == b"012"
    for _ in range(2):
        with stdin.open() as opened:
            assert opened.read() == b"0123456789"


def test_lines_of_the_sink_are_plain_json() -> None:
    """Any reader can take them."""
    sink = ParseSink()
    sink.add(block("1", "ä\u2028\n"))
    assert [orjson.loads(line) for line in sink.lines()] == [block("1", "ä\u2028\n")]
