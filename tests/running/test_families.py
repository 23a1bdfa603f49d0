"""Subagents at work in processes of their own, and what reaches them from above."""

from __future__ import annotations

import os
import signal

import pytest
from commands import until
from house import House, say, shell, sleep
from oracle import faults

SLOW = [say("busy"), sleep(600)]


def family(house: House) -> tuple[str, list[str]]:
    """Make an agent whose turn spawns two slow children; return what is to be sent to it."""
    slow = house.script("slow", SLOW)
    spawn = f"agentsdir spawn --provider counted -o {slow}"
    parent = house.new(
        "parent",
        "actor",
        [shell("a", f"{spawn} --name anna a"), shell("b", f"{spawn} --name bert b")],
        [say("one heard")],
        [say("two heard")],
        [say("more")],
    )
    return parent, ["send", parent, "go"]


def children(house: House, parent: str, text: str = "busy") -> list[str]:
    """Wait until both are at work; return them."""
    found = until(lambda: len(house.logs()) == 3 and house.logs(), "that there are two")
    both = [agent for agent in found if agent != parent]
    for agent in both:
        house.wait_said(agent, text)
    return both


@pytest.mark.feature("A-05", "A-06")
def test_children_run_side_by_side_and_each_is_heard(house: House) -> None:
    """Both are at work at once; one is ended, then the other, and the parent gets two notices."""
    parent, command = family(house)
    running = house.start(*command)
    both = children(house, parent)
    for agent in both:
        house.ok("interrupt", agent)
    assert house.end(running).code == 0
    assert house.said(parent) == ["one heard", "two heard"]
    assert all("Interrupted" in text for text in house.asked(parent)[1:])
    house.quiet()
    assert faults(house, slots=4) == []


@pytest.mark.feature("A-04", "A-06")
def test_closing_reaches_all_that_is_below_and_nothing_above(house: House) -> None:
    """Turns in any process end, nothing is left running, and no agent gets a notice of it."""
    parent, command = family(house)
    running = house.start(*command)
    both = children(house, parent)
    house.ok("close", both[0])
    assert house.of(parent, "session.state")[-1]["to"] != "terminated"
    house.ok("close", parent)
    assert house.end(running).code in (0, 13)
    house.quiet()
    for agent in (parent, *both):
        assert house.of(agent, "session.state")[-1]["to"] == "terminated"
    assert faults(house, slots=4) == []


@pytest.mark.feature("A-06")
def test_an_interrupt_at_the_terminal_reaches_the_children(house: House) -> None:
    """SIGINT for the process that waits for them ends their turns, and it."""
    parent, command = family(house)
    running = house.start(*command)
    both = children(house, parent)
    running.send_signal(signal.SIGINT)
    assert house.end(running).code == 130
    house.quiet()
    for agent in both:
        assert house.of(agent, "turn.aborted") != []
    details = [one["detail"] for one in house.of(parent, "agent.spawned") if "detail" in one]
    assert details == ["Interrupted"] * 2
    house.run_what_waits()
    assert faults(house, slots=4) == []


@pytest.mark.feature("T-10")
def test_children_outlive_the_process_that_waited_for_them(house: House) -> None:
    """That process is killed; they go on, and `restore` leaves them alone, until they end."""
    parent, command = family(house)
    running = house.start(*command)
    both = children(house, parent)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    house.ok("restore")
    for agent in both:
        assert house.of(agent, "turn.aborted") == []
        house.ok("interrupt", agent)
    house.quiet()
    house.run_what_waits()
    assert house.said(parent) == ["one heard", "two heard"]
    assert faults(house, slots=4) == []


@pytest.mark.feature("A-05")
def test_a_child_in_the_background_outlives_the_turn_that_asked_for_it(house: House) -> None:
    """It carries no marks of the turn; its answer waits for the parent, or is looked at at once."""
    slow = house.script("slow", [say("busy"), sleep(0.5), say("done")])
    spawn = f"agentsdir spawn --detach --name anna --provider counted -o {slow} work"
    parent = house.new("parent", "actor", [shell("a", spawn)], [say("heard")], [say("more")])
    house.ok("send", parent, "go")
    house.quiet()
    house.run_what_waits()
    assert house.said(parent) == ["heard"]
    assert faults(house, slots=4) == []


@pytest.mark.feature("S-09")
def test_a_child_may_spawn_in_its_own_turn(house: House) -> None:
    """The answers come back one above the other, with one slot."""
    house.settle(max_slots=1)
    below = house.script("below", [say("deep")])
    inner = f"agentsdir spawn --name below --provider counted -o {below} dig"
    middle = house.script("middle", [shell("b", inner)], [say("from below")])
    outer = f"agentsdir spawn --name middle --provider actor -o {middle} work"
    parent = house.new("parent", "actor", [shell("a", outer)], [say("first")], [say("second")])
    house.ok("send", parent, "go")
    house.quiet()
    assert len(house.logs()) == 3
    assert faults(house, slots=1) == []
    spawned = [one for one in house.of(parent, "agent.spawned") if one["status"] != "running"]
    assert [one["status"] for one in spawned] == ["success"]
