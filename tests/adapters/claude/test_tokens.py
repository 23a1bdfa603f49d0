"""Tokens count once per model message, and say whether they are exact."""

from typing import Any

import pytest
from claude_support import call, lines, parse, reader, result, row, said, user

from agentsdir.formats import sink as sink_module
from agentsdir.formats.blocks import add_usage, no_usage
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

pytestmark = pytest.mark.feature("B-01")


def _usage(output: int, **more: Any) -> dict[str, Any]:
    return {
        "input_tokens": 3, "output_tokens": output, "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 10, **more,
    }  # fmt: skip


def test_a_message_over_several_rows_counts_once_from_its_last_row() -> None:
    """The counts are repeated on every row, and may grow."""
    sink = parse(
        lines(
            said("a1", None, "x", id="m1", usage=_usage(1), stop_reason=None),
            user("u1", "a1", "between"),
            said("a2", "a1", call("t1"), id="m1", usage=_usage(50), stop_reason="tool_use"),
        )
    )
    usage = sink.conversations["main"].usage
    assert (usage["outputTokens"], usage["totalTokens"], usage["exact"]) == (50, 163, True)
    carried = [block["id"] for block in sink.blocks() if "usage" in block]
    assert carried == ["a2:0"]


def test_counts_are_lower_bounds_where_no_row_has_a_stop_reason() -> None:
    """Then only the placeholder from the start of the stream was written."""
    sink = parse(lines(said("a1", None, "x", usage=_usage(1), stop_reason=None)))
    assert sink.usage()["exact"] is False


def test_rows_without_message_id_never_fold_together() -> None:
    """Two anonymous messages are two messages."""
    sink = parse(
        lines(
            said("a1", None, "x", id=None, usage=_usage(5)),
            said("a2", "a1", "y", id=None, usage=_usage(7)),
        )
    )
    assert sink.usage()["outputTokens"] == 12


def test_thinking_is_counted_within_the_output() -> None:
    """The part that was thought is named where the client knows it."""
    details = {"thinking_tokens": 4}
    sink = parse(lines(said("a1", None, "x", usage=_usage(9, output_tokens_details=details))))
    usage = sink.usage()
    assert (usage["outputTokens"], usage["thinkingTokens"], usage["totalTokens"]) == (9, 4, 122)


@pytest.mark.parametrize("broken", [None, "7", -1, 1.5, True, 2**60, [], {}])
def test_counts_of_any_shape_are_survived(broken: Any) -> None:
    """What is no count counts as nothing."""
    sink = parse(lines(said("a1", None, "x", usage={"input_tokens": broken, "output_tokens": 2})))
    assert sink.usage()["totalTokens"] == 2


def test_a_message_without_usage_makes_the_sum_a_lower_bound() -> None:
    """Something was spent, and no row says how much."""
    sink = parse(lines(said("a1", None, "x", usage=None), said("a2", "a1", "y", usage=_usage(1))))
    assert (sink.usage()["totalTokens"], sink.usage()["exact"]) == (114, False)


def test_a_superseded_answer_was_paid_for_all_the_same() -> None:
    """Rewinding gives no tokens back."""
    sink = parse(
        lines(
            user("u0", None, "a"), said("a0", "u0", "x", usage=_usage(1)),
            user("u1", "a0", "b"), said("a1", "u1", "y", usage=_usage(1)),
            user("u2", "a0", "c"), said("a2", "u2", "z", usage=_usage(1)),
        )
    )  # fmt: skip
    assert sink.usage()["totalTokens"] == 342


def _cost(sent: int, got: int, read: int = 0, wrote: int = 0) -> dict[str, Any]:
    spent = {
        "inputTokens": sent, "outputTokens": got,
        "cacheReadInputTokens": read, "cacheCreationInputTokens": wrote,
    }  # fmt: skip
    return {"type": "cost-state", "sessionId": "s", "modelUsage": {"m": spent}}


ASKED = user("u1", None, "a")
BOUNDARY = row("system", "b1", None, subtype="compact_boundary")


def test_the_clients_own_count_says_what_no_row_shows() -> None:
    """The summary of a compaction was paid for, and only the client's sum has it."""
    rows = lines(ASKED, said("a1", "u1", "x"), BOUNDARY)
    assert (parse(rows).usage()["totalTokens"], parse(rows).usage()["exact"]) == (3, False)
    sink = parse(rows + lines(_cost(8, 41)))
    assert (sink.usage()["totalTokens"], sink.usage()["exact"]) == (49, True)
    assert sink.conversations["main"].usage["totalTokens"] == 3
    assert [(finding.id, finding.severity) for finding in sink.findings] == [
        ("unrecorded-usage", "info")
    ]
    later = lines(user("u2", "b1", "b"), said("a2", "u2", "y"))
    assert parse(rows + lines(_cost(8, 41)) + later).usage()["totalTokens"] == 52


def test_a_count_that_knows_less_than_the_rows_takes_nothing_away() -> None:
    """A client that was killed never wrote what it had spent."""
    rows = lines(ASKED, said("a1", "u1", "x"), user("u2", "a1", "b"), said("a2", "u2", "y"))
    sink = parse(rows + lines(_cost(1, 2)))
    assert (sink.usage()["totalTokens"], sink.usage()["exact"]) == (6, True)
    mixed = parse(rows + lines(_cost(1, 40)))
    assert (mixed.usage()["outputTokens"], mixed.usage()["inputTokens"]) == (40, 2)
    assert mixed.usage()["exact"] is False


@pytest.mark.parametrize(
    "rows",
    [
        [ASKED],
        [ASKED, user("u2", "u1", "b"), said("a1", "u2", "x")],
        [ASKED, said("a1", "u1", "x"), {"type": "ai-title", "aiTitle": "t", "sessionId": "s"}],
        [ASKED, {**said("a1", "u1", "x"), "version": "2.0.77"}],
    ],
    ids=["no answer", "no answer before the next prompt", "a title", "an old client"],
)
def test_tokens_that_no_row_counts_make_the_sum_a_lower_bound(rows: list[dict[str, Any]]) -> None:
    """A prompt without an answer cost something, and so does what the client asks for itself."""
    assert parse(lines(*rows)).usage()["exact"] is False


def test_an_api_error_is_an_answer_that_cost_nothing() -> None:
    """So the client counts, too."""
    wrote = {**said("a1", "u1", "API Error", model="<synthetic>"), "isApiErrorMessage": True}
    assert parse(lines(ASKED, wrote)).usage()["exact"] is True


def _added(*files: bytes) -> tuple[int, bool]:
    counted: set[int] = set()
    total = no_usage()
    for data in files:
        (found,) = reader().discover([Source("-", data=data)])
        sink = ParseSink(apart=True)
        reader().parse_transcripts(found, sink)
        total = add_usage(total, sink.session_usage().added(counted))
    return total["totalTokens"], total["exact"]


def test_a_message_that_was_copied_counts_once_over_several_sessions() -> None:
    """A fork keeps the rows' ids, or names where they come from; a request is one everywhere."""
    source = lines(ASKED, said("a1", "u1", "x", id="m1"))
    more = lines(user("u2", "a1", "b"), said("a2", "u2", "y", id="m2"))
    moved = source.replace(b"00000001", b"00000002")
    origin = {"sessionId": "s", "messageUuid": "a1"}
    renamed = lines(user("c1", None, "a"), {**said("c2", "c1", "x", id="m1"), "forkedFrom": origin})
    assert _added(source, moved + more) == (6, True)
    assert _added(moved + more, source) == (6, True)
    assert _added(source, renamed + more) == (6, True)
    one, two = said("a1", None, "x", id="m1"), said("z1", None, "x", id="m1")
    request = {"requestId": "req_1"}
    assert _added(lines({**one, **request}), lines({**two, **request}))[0] == 3


def test_a_gateway_that_repeats_message_ids_loses_no_tokens() -> None:
    """Another row with the same message id, in another session, is another message."""
    one, two = said("a1", None, "x", id="m1"), said("z1", None, "x", id="m1")
    assert _added(lines(one), lines(two))[0] == 6


def test_the_tokens_of_a_message_without_a_visible_part_stand_on_a_hidden_block() -> None:
    """So that the blocks' sum is the report's."""
    sink = parse(lines(user("u1", None, "go"), said("a1", "u1")), hidden=True)
    spent = [b["usage"]["totalTokens"] for b in sink.blocks("all") if "usage" in b]
    assert sum(spent) == sink.usage()["totalTokens"] == 3


def test_the_usage_of_a_message_moves_with_a_row_that_comes_after_others() -> None:
    """Two messages alternate: each has its counts once, on its last block, after its status."""
    sink = parse(
        lines(
            said("a1", None, "x", id="m1", usage=_usage(1)),
            said("b1", "a1", call("t1"), id="m2", usage=_usage(2)),
            user("r1", "b1", [result("t1")]),
            said("a2", "r1", "y", id="m1", usage=_usage(3)),
            said("b2", "a2", call("t2"), id="m2", usage=_usage(4)),
            said("c1", "b2", "z", id="m3", usage=_usage(5)),
            user("r2", "c1", [result("t2")]),
        )
    )
    blocks = {block["id"]: block for block in sink.blocks()}
    counted = {name: b["usage"]["outputTokens"] for name, b in blocks.items() if "usage" in b}
    assert counted == {"a2:0": 3, "b2:0": 4, "c1:0": 5}
    # Also where the result came when the next message had begun.
    assert list(blocks["b2:0"])[-2:] == ["status", "usage"]
    assert sink.usage()["outputTokens"] == 12


def test_results_after_rows_take_the_place_of_their_counts() -> None:
    """Lines of stdout that were saved as a file: no message has counts of its own then."""
    rows = [said("a1", None, "x", usage=_usage(1)), said("a2", "a1", "y", usage=_usage(2))]
    done = {"type": "result", "subtype": "success", "session_id": "s", "usage": _usage(9)}
    sink = parse(lines(*rows, done))
    assert not [block for block in sink.blocks() if "usage" in block]
    assert sink.conversations["main"].usage["outputTokens"] == 9


@pytest.mark.parametrize("held", [1, 2, 5])
def test_counts_are_on_the_same_blocks_however_many_are_held_back(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is known of a block when it is written, and what comes later, give the same line."""
    rows = []
    for turn in range(12):
        rows += [
            user(f"u{turn}", f"e{turn - 1}" if turn else None, "hello"),
            said(f"c{turn}", f"u{turn}", call(f"t{turn}"), id=f"m{turn % 5}", usage=_usage(turn)),
            said(f"d{turn}", f"c{turn}", "text", id=f"n{turn}", usage=_usage(turn)),
            user(f"r{turn}", f"d{turn}", [result(f"t{turn - 1}")]),
            said(f"e{turn}", f"r{turn}", "text", id=f"m{turn % 3}", usage=_usage(100 + turn)),
        ]
    whole = list(parse(lines(*rows)).lines())
    monkeypatch.setattr(sink_module, "HELD", held)
    assert list(parse(lines(*rows)).lines()) == whole
