"""Token counts in one vocabulary (decision D9), whatever the client calls them."""

from __future__ import annotations

from typing import Any, TypeAlias

# inputTokens excludes cache; outputTokens includes thinking; totalTokens = the first four summed.
# `exact` is False where the transcript cannot know, so the numbers are "at least".
Usage: TypeAlias = dict[str, Any]

# Sums of thousands of such counts are still written exactly.
BELIEVABLE = 10**12

COUNTED = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


def usage(
    input_tokens: int,
    output_tokens: int,
    cache_read: int = 0,
    cache_write: int = 0,
    thinking: int | None = None,
    *,
    exact: bool = True,
) -> Usage:
    """Build one usage object; `thinking` is the part of `output_tokens` that was thought."""
    made: Usage = {
        "inputTokens": input_tokens,
        "outputTokens": output_tokens,
        "cacheReadTokens": cache_read,
        "cacheWriteTokens": cache_write,
    }
    if thinking is not None:
        made["thinkingTokens"] = thinking
    made["totalTokens"] = input_tokens + output_tokens + cache_read + cache_write
    made["exact"] = exact
    return made


def add_usage(left: Usage, right: Usage) -> Usage:
    """Return the sum; it is exact only where both are."""
    thinking = None
    if "thinkingTokens" in left or "thinkingTokens" in right:
        thinking = left.get("thinkingTokens", 0) + right.get("thinkingTokens", 0)
    sent, got, read, wrote = (left[name] + right[name] for name in COUNTED)
    return usage(sent, got, read, wrote, thinking, exact=left["exact"] and right["exact"])


def less_usage(whole: Usage, part: Usage) -> Usage:
    """Return what is left of `whole` without `part`, which is in it."""
    thinking = None
    if "thinkingTokens" in whole:
        thinking = whole["thinkingTokens"] - part.get("thinkingTokens", 0)
    sent, got, read, wrote = (whole[name] - part[name] for name in COUNTED)
    return usage(sent, got, read, wrote, thinking, exact=whole["exact"])


def larger_usage(left: Usage, right: Usage) -> Usage:
    """Return the larger of each two counts, which is a lower bound."""
    sent, got, read, wrote = (max(left[name], right[name]) for name in COUNTED)
    thinking = max(left.get("thinkingTokens", 0), right.get("thinkingTokens", 0)) or None
    return usage(sent, got, read, wrote, thinking, exact=False)


def is_beyond(left: Usage, right: Usage) -> bool:
    """Tell whether `left` counts more than `right` of anything."""
    return any(left[name] > right[name] for name in COUNTED)


def as_usage(value: Any) -> Usage | None:
    """Return what a stream or a record says as a whole usage object, or None if it says nothing.

    Counts that are missing, no integers or beyond belief are 0, and the result is not exact then.
    """
    if not isinstance(value, dict):
        return None
    counts = [value.get(name) for name in COUNTED]
    whole = [_count(count) or 0 for count in counts]
    sent, got, read, wrote = whole
    thinking = _count(value.get("thinkingTokens"))
    exact = value.get("exact") is not False and whole == counts
    return usage(sent, got, read, wrote, thinking, exact=exact)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= BELIEVABLE else None


def no_usage() -> Usage:
    """Return zero, exactly."""
    return usage(0, 0)
