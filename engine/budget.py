"""What an agent may spend, and what the turns of its log have taken (SPEC.md, "Events").

Tokens, turns and seconds count over the agent's life, money in a day of the machine's time zone.
Only what clients report is counted, and only of the agent's own turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats import times
from agentsdir.formats.errors import BudgetSpent, UsageError
from agentsdir.formats.store.events import BUDGET, TURN_ENDS, cost_of
from agentsdir.formats.store.log import find_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

    LocalDay = Callable[[datetime], tuple[datetime, datetime]]

_UNITS = {"k": 1_000, "m": 1_000_000}
_A_DAY = "/day"
_MOST = 10**15
EXAMPLE = "tokens:200000,turns:50,seconds:600,cost:2.50/day"


def parse_budget(text: str) -> dict[str, float]:
    """Return the budget that a text says, such as `EXAMPLE`; an empty one for an empty text.

    Raises `UsageError` (kind ``bad-budget``).
    """
    budget: dict[str, float] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, said = part.partition(":")
        limit = _number(said.removesuffix(_A_DAY) if name == "cost" else said)
        if name not in BUDGET or limit is None or (name == "turns" and limit != int(limit)):
            raise UsageError(
                f"budget={text}: {part!r} is no limit",
                hint=f"one or more of budget={EXAMPLE}",
                kind="bad-budget",
            )
        budget[name] = limit
    return {name: budget[name] for name in BUDGET if name in budget}


def _number(said: str) -> float | None:
    unit = _UNITS.get(said[-1:].lower(), 1)
    digits = said[:-1] if unit > 1 else said
    if not digits.replace(".", "", 1).isdecimal() or not digits.isascii():
        return None
    limit = float(digits) * unit
    if limit > _MOST:
        return None
    return int(limit) if limit == int(limit) else limit


def budget_text(budget: Mapping[str, Any]) -> str:
    """Return a budget as `parse_budget` takes it."""
    limits = limits_of(budget)
    costs = {"cost": f"{limits['cost']:.2f}{_A_DAY}"} if "cost" in limits else {}
    return ",".join(f"{name}:{said}" for name, said in {**limits, **costs}.items())


def limits_of(budget: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits of a budget that are known."""
    return {
        name: budget[name]
        for name in BUDGET
        if isinstance(budget.get(name), int | float) and not isinstance(budget[name], bool)
    }


class Spent(NamedTuple):
    """What turns have taken; `cost` is US dollars of one day, which ends at `day_ends`."""

    tokens: int
    turns: int
    seconds: float
    cost: float
    day_ends: datetime

    def exceeds(self, budget: Mapping[str, Any]) -> str:
        """Return which limit of a budget is reached, money last; empty for none."""
        for name, limit in limits_of(budget).items():
            if getattr(self, name) >= limit:
                return name
        return ""

    def as_json(self, budget: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `inspect` shows of a budget."""
        ends = times.to_text(self.day_ends) if self.exceeds(budget) == "cost" else None
        said = {name: getattr(self, name) for name in BUDGET}
        return {
            "limits": limits_of(budget),
            "spent": {**said, "seconds": round(self.seconds, 3), "cost": round(self.cost, 6)},
            "freeAt": ends,
        }


class Meter:
    """Counts what the turns of one agent have taken; a second look reads on in its log."""

    def __init__(self, paths: AgentPaths) -> None:
        self._paths = paths
        self._read_to = 0
        self._began: datetime | None = None
        self._seconds = 0.0
        self._costs: list[tuple[datetime, float]] = []

    def spent(self, state: AgentState, now: str, local_day: LocalDay) -> Spent:
        """Return what was spent up to a state.

        Args:
            now: the time, in the day that counts.
            local_day: returns when the day began and ends that a moment is in.
        """
        begins, ends = local_day(times.from_text(now))
        if {"seconds", "cost"} & limits_of(state.budget).keys():
            self._read()
        cost = sum(cost for at, cost in self._costs if begins <= at < ends)
        counted = state.usage["totalTokens"], state.counters["turns"], self._seconds
        return Spent(*counted, cost, ends)

    def _read(self) -> None:
        for record, end in find_records(self._paths.log, b'"turn.', self._read_to):
            self._read_to = end
            try:
                at = times.from_text(record.ts)
            except (OverflowError, ValueError):  # a foreign writer's
                continue
            if record.event == "turn.start":
                self._began = at
            elif record.event in TURN_ENDS:
                if self._began is not None and record.data.get("reason") != "crash":
                    self._seconds += max(0.0, (at - self._began).total_seconds())
                self._began = None
                if cost := cost_of(record.data):
                    self._costs.append((at, cost))


def check_budget(paths: AgentPaths, state: AgentState, spent: Spent) -> None:
    """Raise `BudgetSpent` if no more turn of the agent may begin."""
    name = spent.exceeds(state.budget)
    if not name:
        return
    limit = limits_of(state.budget)[name]
    change = f"`agentsdir set {paths.id} budget=…` changes it; what waits in its inbox stays there"
    if name == "cost":
        free = spent.day_ends.strftime("%Y-%m-%d %H:%M")
        raise BudgetSpent(
            f"agent {paths.id} has spent ${spent.cost:.2f} of ${limit:.2f} today",
            hint=f"it may go on at {free}; {change}",
        )
    took = getattr(spent, name)
    raise BudgetSpent(
        f"agent {paths.id} has spent its budget: {took:,.0f} of {limit:,.0f} {name}", hint=change
    )


def budget_report(
    paths: AgentPaths, state: AgentState, now: str, local_day: LocalDay
) -> dict[str, Any] | None:
    """Return what commands show of an agent's budget; None without one."""
    if not state.budget:
        return None
    return Meter(paths).spent(state, now, local_day).as_json(state.budget)
