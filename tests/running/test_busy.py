"""While a turn sleeps, other processes' commands take effect at once, and in order."""

from __future__ import annotations

from datetime import datetime

import pytest
from commands import until
from house import House, Record, say, sleep
from oracle import faults

WITHIN = 1.0
"""Seconds from a request's record to the end of the turn."""
ATTEMPTS = 5
"""A machine that has other work can make an end late, never early: one timely round is enough."""


def begun(house: House, agent: str, count: int) -> None:
    """Wait until so many turns are asleep."""
    until(lambda: house.said(agent).count("asleep") == count, f"turn {count}")


@pytest.mark.feature("G-06", "A-03", "A-04")
def test_what_others_ask_of_a_busy_agent_takes_effect_while_its_turn_sleeps(house: House) -> None:
    """Queue, spawn, send, interrupt and close, each from a process of its own, in this order."""
    delays: list[float] = []
    for attempt in range(ATTEMPTS):
        delays = one_round(house, f"sleeper-{attempt}")
        if max(delays) < WITHIN:
            break
    assert max(delays) < WITHIN, delays
    house.quiet()
    assert faults(house, slots=4) == []


def one_round(house: House, name: str) -> list[float]:
    """Ask everything of one agent; return how long its turns went on when asked to end."""
    agent = house.new(name, "counted", [say("asleep"), sleep(600), say("awake")])
    first = house.start("send", agent, "one")
    begun(house, agent, 1)
    queued = house.ok("queue", agent, "two")
    answer = house.ok("spawn", "--parent", agent, "--name", "child", "--provider", "echo", "three")
    second = house.start("send", agent, "four")
    house.wait_for(agent, "message.enqueued", 3)
    house.ok("interrupt", agent, "--reason", "enough")
    interrupted = house.end(first)
    begun(house, agent, 2)
    house.ok("close", agent)
    closed = house.end(second)

    assert (interrupted.code, closed.code, answer) == (130, 13, "three")
    assert "awake" not in house.said(agent)
    log = house.log(agent)
    moments = [
        at(log, "message.enqueued", message_id=queued),
        at(log, "agent.spawned", status="running"),
        at(log, "message.enqueued", content=[{"type": "text", "text": "four"}]),
        at(log, "abort.requested", reason="interrupt"),
        at(log, "session.state", to="terminated"),
    ]
    (one, two) = [number for number, r in enumerate(log) if r["event"] == "turn.start"]
    (ended, cut) = [number for number, r in enumerate(log) if r["event"] == "turn.aborted"]
    assert [one, *moments[:4], ended, two, moments[4], cut] == sorted(
        [one, *moments[:4], ended, two, moments[4], cut]
    )
    assert log[two]["data"]["message_ids"] == [queued]
    assert [r["data"]["outcome"] for r in log if r["event"] == "message.delivered"] == [
        "aborted"
    ] * 3
    stamps = [datetime.fromisoformat(record["ts"]).timestamp() for record in log]
    return [stamps[ended] - stamps[moments[3]], stamps[cut] - stamps[moments[4]]]


def at(log: list[Record], event: str, **data: object) -> int:
    """Return where a log has an event with this data, which stands there once."""
    (found,) = [
        number
        for number, record in enumerate(log)
        if record["event"] == event
        and all(record["data"].get(name) == value for name, value in data.items())
    ]
    return found
