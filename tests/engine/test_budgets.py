"""Budgets: how they are said, what counts, and that a spent one begins no turn."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.engine.budget import Meter, budget_report, budget_text, parse_budget
from agentsdir.engine.create import fork_agent
from agentsdir.engine.dispatcher import run_inbox, send_message
from agentsdir.engine.inbox import Message, text_message
from agentsdir.engine.services import utc_day
from agentsdir.engine.settings import Changes, change_settings
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import BudgetSpent, UsageError
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.log import append_record

OPTIONS = TurnOptions(lambda _event: None)


def limited(stage: Any, budget: str, **wanted: Any) -> Any:
    """Return an agent with a budget."""
    paths = stage.new(**wanted)
    change_settings(stage.services, paths, Changes(budget=parse_budget(budget)))
    return paths


def turn(stage: Any, paths: Any, began: str, ended: str, **end: Any) -> None:
    """Append a turn that took from one time to another."""
    number = stage.state(paths).counters["turns"]
    turn_id = f"t{number:023d}"
    start = {"turn_id": turn_id, "message_ids": [], "provider": "echo", "attempt": 1}
    event = end.pop("event", "turn.complete")
    done = {"turn_id": turn_id, "response": "", "stop_reason": None, "usage": None, **end}
    with write_agent(paths) as writer:
        writer.append("turn.start", start, began)
        writer.append(event, done, ended)


@pytest.mark.parametrize(
    ("said", "budget"),
    [
        ("tokens:200000,turns:50,seconds:600,cost:2.50/day",
         {"tokens": 200000, "turns": 50, "seconds": 600, "cost": 2.5}),
        ("cost:3, turns:1", {"turns": 1, "cost": 3}),
        ("tokens:200k,seconds:0.5", {"tokens": 200_000, "seconds": 0.5}),
        ("tokens:1.5M", {"tokens": 1_500_000}),
        ("turns:0", {"turns": 0}),
        ("", {}),
    ],
)  # fmt: skip
def test_a_budget_is_said_in_words_and_numbers(said: str, budget: dict[str, float]) -> None:
    """In any order; it is shown so that it can be said again."""
    assert parse_budget(said) == budget
    assert list(parse_budget(said)) == [name for name in ("tokens", "turns", "seconds", "cost")
                                        if name in budget]  # fmt: skip
    assert parse_budget(budget_text(budget)) == budget


@pytest.mark.parametrize(
    "said",
    ["50", "turns", "turns:", "turns:x", "turns:-1", "turns:1.5", "tokens:1/day", "money:2",
     "turns:1e3", "turns:\uff11", "tokens:1.2.3", "tokens:k", "tokens:9999999999m", "cost:nan",
     "cost:2/week"],
)  # fmt: skip
def test_a_budget_that_says_something_else_is_refused(said: str) -> None:
    """With what could be said."""
    with pytest.raises(UsageError, match="is no limit") as raised:
        parse_budget(said)
    assert (raised.value.kind, "cost:2.50/day" in str(raised.value.hint)) == ("bad-budget", True)


@given(st.text(max_size=20))
def test_no_text_breaks_the_reading_of_a_budget(said: str) -> None:
    """It is a budget, or refused in words."""
    with suppress(UsageError):
        assert all(limit >= 0 for limit in parse_budget(said).values())


def test_a_spent_budget_begins_no_turn_and_queues_nothing(stage: Any) -> None:
    """Of the message that is refused, nothing stays; of one with an id, the message waits."""
    paths = limited(stage, "turns:1")
    stage.send(paths, "one")
    before = paths.log.read_bytes()
    with pytest.raises(BudgetSpent, match="spent its budget: 1 of 1 turns") as raised:
        stage.send(paths, "two")
    assert (raised.value.kind, f"set {paths.id} budget=" in str(raised.value.hint)) == (
        "budget",
        True,
    )
    assert paths.log.read_bytes() == before

    named = Message(text_message("three"), id="m" * 24)
    with pytest.raises(BudgetSpent, match="stays queued as m"):
        send_message(stage.services, paths, named, OPTIONS)
    assert [one["messageId"] for one in stage.state(paths).pending] == ["m" * 24]


def test_messages_wait_until_the_budget_is_changed(stage: Any) -> None:
    """The turn that spends it ends; what is behind it stays queued, and runs afterwards."""
    paths = limited(stage, "tokens:3")
    for text in ("one two", "three four", "five"):
        stage.enqueue(paths, text)
    with pytest.raises(BudgetSpent, match="4 of 3 tokens"):
        run_inbox(stage.services, paths, OPTIONS)
    state = stage.state(paths)
    assert (len(state.pending), state.counters["turns"], state.open_turn) == (2, 1, None)

    change_settings(stage.services, paths, Changes(budget={}))
    run_inbox(stage.services, paths, OPTIONS)
    assert stage.state(paths).pending == []
    assert read_agent(paths, whole=True).state.budget == {}


def test_an_agent_that_has_spent_much_before_has_spent_it(stage: Any) -> None:
    """A budget is of an agent's life, whenever it is set."""
    paths = stage.new()
    stage.send(paths, "one two three")
    change_settings(stage.services, paths, Changes(budget={"tokens": 6}))
    with pytest.raises(BudgetSpent, match="6 of 6 tokens"):
        stage.send(paths, "four")


def test_seconds_are_those_of_turns(stage: Any) -> None:
    """From the start to the end, whichever it is; not of a crash, whose end was seen later."""
    paths = limited(stage, "seconds:60")
    day = "2026-01-02T"
    turn(stage, paths, f"{day}01:00:00.5Z", f"{day}01:00:10Z")
    turn(stage, paths, f"{day}02:00:00Z", f"{day}02:00:20Z", event="turn.error", kind="x",
         message="x")  # fmt: skip
    turn(stage, paths, f"{day}03:00:00Z", f"{day}05:00:00Z", event="turn.aborted", reason="crash")
    turn(stage, paths, f"{day}06:00:00Z", f"{day}05:00:00Z")  # the clock was set back
    report = budget_report(paths, stage.state(paths), stage.now(), utc_day)
    assert report is not None
    assert (report["spent"]["seconds"], report["freeAt"]) == (29.5, None)
    turn(stage, paths, f"{day}07:00:00Z", f"{day}07:00:30.5Z")
    with pytest.raises(BudgetSpent, match="60 of 60 seconds"):
        stage.send(paths, "on")


def berlin(moment: datetime) -> tuple[datetime, datetime]:
    """Return the day in Berlin."""
    zone = ZoneInfo("Europe/Berlin")
    day = moment.astimezone(zone).date()
    begins, ends = (datetime(d.year, d.month, d.day, tzinfo=zone)
                    for d in (day, day + timedelta(days=1)))  # fmt: skip
    return begins, ends


def test_money_is_that_of_a_local_day(stage: Any) -> None:
    """What was reported before midnight there does not count; the refusal says when it is over."""
    paths = stage.new(provider="claude")
    change_settings(stage.services, paths, Changes(budget={"cost": 2.5}))
    for hour, cost in (("21", 2.0), ("22", 2.4), ("23", 0.2)):  # Berlin's day begins at 22:00 UTC
        moment = f"2026-07-01T{hour}:59:59.999Z" if hour == "21" else f"2026-07-01T{hour}:00:00Z"
        turn(stage, paths, moment, moment, cost_usd=cost)
    meter, state = Meter(paths), stage.state(paths)
    today = meter.spent(state, "2026-07-02T10:00:00Z", berlin)
    assert (round(today.cost, 6), today.exceeds(state.budget)) == (2.6, "cost")
    assert today.as_json(state.budget)["freeAt"] == "2026-07-02T22:00:00.000000Z"
    for moment, cost in (("2026-07-02T22:00:00Z", 0), ("2026-07-01T21:00:00Z", 2.0)):
        other = meter.spent(state, moment, berlin)
        assert (other.cost, other.exceeds(state.budget)) == (cost, "")

    services = stage.services._replace(now=lambda: "2026-07-02T10:00:00Z", local_day=berlin)
    with pytest.raises(BudgetSpent, match=r"spent \$2.60 of \$2.50 today") as raised:
        send_message(services, paths, Message(text_message("hi")), OPTIONS)
    assert "it may go on at 2026-07-03 00:00" in str(raised.value.hint)
    later = services._replace(now=lambda: "2026-07-02T22:00:00Z")
    with pytest.raises(Exception, match="claude") as missing:  # it may run, and is not there
        send_message(later, paths, Message(text_message("hi")), OPTIONS)
    assert not isinstance(missing.value, BudgetSpent)


def test_a_day_of_a_change_to_summer_time_has_23_hours() -> None:
    """The day is that of the clock on the wall."""
    begins, ends = berlin(datetime(2026, 3, 29, 12, tzinfo=UTC))
    assert ends.astimezone(UTC) - begins.astimezone(UTC) == timedelta(hours=23)


def test_a_meter_that_reads_on_counts_what_one_does_that_reads_all(stage: Any) -> None:
    """Also behind damaged lines, and in records that are written in escapes."""
    paths = limited(stage, "seconds:1000")
    meter = Meter(paths)
    for number in range(4):
        turn(stage, paths, f"2026-01-02T0{number}:00:00Z", f"2026-01-02T0{number}:00:07Z")
        if number == 1:
            with paths.log.open("ab") as log:
                log.write(b'{"turn.start": \xff\n')
        state = stage.state(paths)
        on, whole = (m.spent(state, stage.now(), utc_day) for m in (meter, Meter(paths)))
        assert on == whole
        assert whole.seconds == 7 * (number + 1)
    data = paths.log.read_bytes().replace(b'"turn.complete"', rb'"\u0074urn.complete"')
    paths.log.write_bytes(data)
    assert Meter(paths).spent(state, stage.now(), utc_day).seconds == 28


def test_a_spawned_agent_has_a_budget_of_its_own(stage: Any) -> None:
    """What it takes does not count for its parent, and its parent's budget is not its own."""
    paths = limited(stage, "turns:1")
    child = create_child(
        stage.services, paths, SpawnRequest(text_message("hello")), turn_id=None, sync=False
    )
    assert read_agent(child.paths).state.budget == {}
    assert stage.state(paths).counters["turns"] == 0


def test_a_fork_has_the_budget_and_has_spent_nothing(stage: Any) -> None:
    """It is another agent."""
    paths = limited(stage, "turns:1")
    stage.send(paths, "one")
    made = stage.services.layout.agent(fork_agent(stage.services, paths, login="me").agent_id)
    assert (stage.state(made).budget, stage.state(made).counters["turns"]) == ({"turns": 1}, 0)
    stage.send(made, "two")
    with pytest.raises(BudgetSpent):
        stage.send(made, "three")


@pytest.mark.parametrize(
    "budget", [{"turns": "1"}, {"turns": True}, {"tokens": -1}, {"cost": None}, [], "turns:1", 1]
)
def test_a_budget_that_no_writer_writes_is_bad_data(stage: Any, budget: Any) -> None:
    """The record changes nothing."""
    paths = limited(stage, "turns:5")
    state = stage.state(paths)
    data = {"values": {"budget": budget, "cwd": "/x", "model": "m"}}
    append_record(
        paths.log, state.position, "agent.set", data, stage.now(), state.session.id, Disk()
    )
    reading = read_agent(paths, whole=True)
    assert [finding.id for finding in reading.findings] == ["bad-data"]
    after = reading.state
    assert (after.budget, after.cwd, after.session) == ({"turns": 5}, state.cwd, state.session)
