"""Gemini's token counts in our vocabulary (decision D9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.adapters.gemini.transcripts.shapes import dict_of
from agentsdir.formats.reading.usage import usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.formats.reading.usage import Usage


BELOW = 2**53
_COUNTS = ("input", "output", "cached", "thoughts", "tool", "total")


def count_of(value: Any) -> int:
    """Return a token count; anything that is none counts as 0."""
    return value if type(value) is int and 0 <= value < BELOW else 0


def message_usage(tokens: dict[str, Any]) -> Usage:
    """Return the usage of one model message.

    ``cached`` is a part of ``input``; ``output`` excludes ``thoughts``; ``tool`` (what tools put
    into the prompt) is added where the total says that ``input`` lacks it. Where the sum differs
    from ``total`` all the same, the result is not exact.
    """
    sent, got, cached, thoughts, tool, total = [
        # `count_of` spelled out, for this runs for each message.
        count if type(count) is int and 0 <= count < BELOW else 0
        for count in map(tokens.get, _COUNTS)
    ]
    known = sent + got + thoughts
    if tool and total != known:
        sent += tool
        known += tool
    cached = min(cached, sent)
    return usage(
        sent - cached,
        got + thoughts,
        cached,
        0,
        thoughts,
        exact="total" in tokens and total == known,
    )


def total_usage(usages: Iterable[Usage | None]) -> Usage | None:
    """Return the sum of what messages used; None where none says what it used."""
    sent = got = cached = thoughts = counted = 0
    exact = True
    for used in usages:
        if used is not None:
            counted += 1
            sent += used["inputTokens"]
            got += used["outputTokens"]
            cached += used["cacheReadTokens"]
            thoughts += used["thinkingTokens"]
            exact = exact and used["exact"]
    return usage(sent, got, cached, 0, thoughts, exact=exact) if counted else None


def stream_usage(stats: Any) -> Usage | None:
    """Return the usage that a ``result`` line of stdout reports: all models, utility calls too.

    Its ``output_tokens`` leave out thoughts, which only the total shows.
    """
    counts = dict_of(stats)
    if "total_tokens" not in counts:
        return None
    sent, got, cached, total = (
        count_of(counts.get(name))
        for name in ("input_tokens", "output_tokens", "cached", "total_tokens")
    )
    thoughts = max(0, total - sent - got)
    cached = min(cached, sent)
    return usage(sent - cached, got + thoughts, cached, 0, thoughts)


def report_usage(stats: Any) -> Usage | None:
    """Return the usage that ``--output-format json`` reports, all models summed."""
    models = dict_of(dict_of(stats).get("models"))
    counted = [dict_of(dict_of(model).get("tokens")) for model in models.values()]
    if not counted:
        return None
    prompt, got, cached, thoughts, tool = (
        sum(count_of(one.get(name)) for one in counted)
        for name in ("prompt", "candidates", "cached", "thoughts", "tool")
    )
    total = sum(count_of(one.get("total")) for one in counted)
    known = prompt + got + thoughts
    if tool and total != known:
        prompt += tool
        known += tool
    cached = min(cached, prompt)
    return usage(prompt - cached, got + thoughts, cached, 0, thoughts, exact=total == known)
