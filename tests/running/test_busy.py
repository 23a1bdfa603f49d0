"""While a turn sleeps, other processes' commands take effect at once, and in order."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from commands import until
from house import House, Record, say, sleep
from oracle import faults

WITHIN = 1.0
"""Seconds from the start of a command's process to its record."""
ATTEMPTS = 5
"""A machine that has other work can make commands late, never early: one timely round is enough."""


def begun(house: House, agent: str, count: int) -> None:
    """Wait until so many turns are asleep."""
    until(lambda: house.said(agent).count("asleep") == count, f"turn {count}")


def late(log: list[Record], began: list[float], moments: list[int]) -> list[float]:
    """Return how long each command took from its start to its record."""
    stamps = [datetime.fromisoformat(log[moment]["ts"]).timestamp() for moment in moments]
    return [stamp - start for stamp, start in zip(stamps, began, strict=True)]


@pytest.mark.feature("G-06", "A-03", "A-04")
def test_what_others_ask_of_a_busy_agent_takes_effect_within_a_second(house: House) -> None:
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
    """Ask everything of one agent; return each command's delay."""
    agent = house.new(name, "counted", [say("asleep"), sleep(5), say("awake")])
    first = house.start("send", agent, "one")
    begun(house, agent, 1)
    began = [time.time()]
    queued = house.ok("queue", agent, "two")
    began.append(time.time())
    answer = house.ok("spawn", "--parent", agent, "--name", "child", "--provider", "echo", "three")
    began.append(time.time())
    second = house.start("send", agent, "four")
    house.wait_for(agent, "message.enqueued", 3)
    began.append(time.time())
    house.ok("interrupt", agent, "--reason", "enough")
    interrupted = house.end(first)
    begun(house, agent, 2)
    began.append(time.time())
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
    return late(log, began, moments)


def at(log: list[Record], event: str, **data: object) -> int:
    """Return where a log has an event with this data, which stands there once."""
    (found,) = [
        number
        for number, record in enumerate(log)
        if record["event"] == event
        and all(record["data"].get(name) == value for name, value in data.items())
    ]
    return found
