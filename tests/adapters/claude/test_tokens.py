"""Tokens count once per model message, and say whether they are exact."""

from typing import Any

import pytest
from claude_support import call, lines, parse, said, user

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
    """Something was spent, and nobody says how much."""
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
