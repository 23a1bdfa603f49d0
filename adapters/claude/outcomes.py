"""What a run says on stdout of how a turn ended: its `result` line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.claude.shapes import mapping, text
from agentsdir.adapters.claude.tokens import message_usage

if TYPE_CHECKING:
    from agentsdir.formats.reading.usage import Usage

LIMITS = {"error_max_turns": "max_turns", "error_max_budget_usd": "max_budget"}
"""Ends that the user had asked for, and the reasons to stop that they are."""


class Outcome(NamedTuple):
    """A `result` line.

    `failed` is the client's `is_error`, or an error's subtype: it calls an API error a success
    with `is_error`. `cost` is in US dollars and `usage` is the main thread's, both since the result
    before. `queued` is whether more turns wait for their run.
    """

    failed: bool
    subtype: str
    terminal_reason: str
    api_error_status: int | None
    stop_reason: str
    errors: tuple[str, ...]
    text: str
    usage: Usage | None
    cost: float | None
    queued: bool

    @property
    def reason(self) -> str:
        """Why the turn failed, or what it gave, in the client's words."""
        return "\n".join(self.errors) or (self.text if self.failed else "") or self.subtype


def read_outcome(value: dict[str, Any], spent: float = 0.0) -> Outcome:
    """Read a `result` line.

    Args:
        spent: the `total_cost_usd` of the result before it in the same process.
    """
    subtype = text(value.get("subtype"))
    failed = value.get("is_error") is True or subtype.startswith("error")
    errors = value.get("errors")
    status = value.get("api_error_status")
    raw = value.get("usage")
    return Outcome(
        failed=failed,
        subtype=subtype,
        terminal_reason=text(value.get("terminal_reason")),
        api_error_status=status if type(status) is int else None,
        stop_reason=LIMITS.get(subtype) or text(value.get("stop_reason")),
        errors=tuple(error for error in errors if isinstance(error, str))
        if type(errors) is list
        else (),
        text=text(value.get("result")),
        usage=message_usage(raw, final=not failed) if isinstance(raw, dict) else None,
        cost=_cost(value, spent),
        queued=bool(value.get("queued_turn_count")),
    )


def total_cost(value: dict[str, Any]) -> float | None:
    """Return what a `result` line says was spent so far, in US dollars."""
    return _dollars(value.get("total_cost_usd"))


def _cost(value: dict[str, Any], spent: float) -> float | None:
    """Return what one result cost.

    The total runs over the process, and over the whole session in some versions; the newest say
    what came since the last result.
    """
    since = value.get("model_usage_since_last_result")
    if isinstance(since, dict):
        return sum(_dollars(mapping(used).get("costUSD")) or 0.0 for used in since.values())
    total = total_cost(value)
    return None if total is None else max(0.0, total - spent)


def _dollars(value: Any) -> float | None:
    if type(value) in (int, float) and 0 <= value < 1e9:
        return float(value)
    return None
