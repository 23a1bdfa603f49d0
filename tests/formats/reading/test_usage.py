"""Token counts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.blocks import add_usage, as_usage, no_usage, usage

COUNT = st.integers(0, 10**9)
USAGE = st.builds(
    lambda sent, got, read, wrote, thought, exact: usage(
        sent, got, read, wrote, thought, exact=exact
    ),
    COUNT,
    COUNT,
    COUNT,
    COUNT,
    st.none() | COUNT,
    st.booleans(),
)


def test_the_total_is_the_sum_of_the_four_counts() -> None:
    """Thinking is a part of the output and is not counted again."""
    made = usage(1, 20, 300, 4000, thinking=7)
    assert made["totalTokens"] == 4321
    assert made["thinkingTokens"] == 7


def test_thinking_is_absent_where_it_was_not_counted() -> None:
    """Unknown is not zero."""
    assert "thinkingTokens" not in usage(1, 2)
    assert "thinkingTokens" not in add_usage(usage(1, 2), usage(3, 4))


@given(USAGE, USAGE, USAGE)
def test_adding_keeps_the_sums_and_is_exact_only_where_all_are(
    first: Any, second: Any, third: Any
) -> None:
    """Order does not matter, nothing is lost, doubt stays."""
    total = add_usage(add_usage(first, second), third)
    assert total == add_usage(first, add_usage(third, second))
    assert total["totalTokens"] == sum(u["totalTokens"] for u in (first, second, third))
    assert total["exact"] == (first["exact"] and second["exact"] and third["exact"])
    assert add_usage(first, no_usage()) == first


@given(USAGE)
def test_a_whole_usage_is_taken_as_it_is(value: Any) -> None:
    """Recorded counts come back unchanged."""
    assert as_usage(value) == value


@pytest.mark.parametrize("value", [None, 1, "x", [], True])
def test_what_is_no_object_says_nothing(value: Any) -> None:
    """There is then no usage at all."""
    assert as_usage(value) is None


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"inputTokens": 5, "outputTokens": 2},
        {"inputTokens": -1, "outputTokens": 2, "cacheReadTokens": 0, "cacheWriteTokens": 0},
        {"inputTokens": True, "outputTokens": 2, "cacheReadTokens": 0, "cacheWriteTokens": 0},
        {"inputTokens": "5", "outputTokens": 2, "cacheReadTokens": 0, "cacheWriteTokens": 0},
    ],
)
def test_counts_that_are_missing_or_odd_make_it_inexact(value: Any) -> None:
    """They count as zero, and the sum is "at least"."""
    made = as_usage(value)
    assert made is not None
    assert not made["exact"]
    assert made["totalTokens"] == made["inputTokens"] + made["outputTokens"]
    add_usage(made, no_usage())
