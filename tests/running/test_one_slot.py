"""With one slot, who does what in which order, in every log (goldens; UPDATE_GOLDEN=1)."""

from __future__ import annotations

import pytest
from commands import until
from house import House, Line, fail, say, shell, sleep
from oracle import faults
from story import check_golden, story

from agentsdir.formats.store import locks

ENDINGS: dict[str, list[Line]] = {
    "success": [say("done")],
    "error": [say("so far"), fail()],
    "abort": [say("so far"), sleep(600), say("unreachable")],
}
CODES = {"success": 0, "error": 14, "abort": 130}

ending = pytest.mark.parametrize("ending", ENDINGS)


def settled(house: House, name: str) -> None:
    """Compare what happened with what is to happen, once nothing runs any more."""
    house.quiet()
    assert faults(house, slots=1) == []
    check_golden(name, story(house))


def stop(house: House, agent: str, ending: str) -> None:
    """Interrupt the turn that is to be aborted, once it is under way."""
    if ending == "abort":
        house.wait_said(agent, "so far")
        house.ok("interrupt", agent)


@ending
@pytest.mark.feature("S-07", "S-10")
def test_three_agents_are_used_in_turn(house: House, ending: str) -> None:
    """Each send takes the slot from the one before, whose session is suspended first."""
    house.settle(max_slots=1)
    first = house.new("first", "counted", [say("one")])
    second = house.new("second", "counted", ENDINGS[ending])
    third = house.new("third", "counted", [say("three")])
    house.ok("send", first, "go")
    running = house.start("send", second, "go")
    stop(house, second, ending)
    assert house.end(running).code == CODES[ending]
    house.ok("send", third, "go")
    house.ok("send", first, "again")
    settled(house, f"in-turn-{ending}")


@ending
@pytest.mark.feature("S-08")
def test_an_answer_comes_back_as_the_next_turn(house: House, ending: str) -> None:
    """A turn sends to another agent and ends; the other has the slot, then the answer comes."""
    house.settle(max_slots=1)
    asker = house.new(
        "asker",
        "actor",
        [say("asking"), shell("ask", "agentsdir send --to helper --sync 'how much?'")],
        [say("thanks")],
    )
    helper = house.new("helper", "counted", ENDINGS[ending])
    running = house.start("send", asker, "go")
    stop(house, helper, ending)
    assert house.end(running).code == 0
    assert house.said(asker) == ["asking", "thanks"]
    settled(house, f"sync-reply-{ending}")


@ending
@pytest.mark.feature("S-09", "A-05", "B-04")
def test_a_child_that_is_spawned_in_a_turn_runs_after_it(house: House, ending: str) -> None:
    """Its block is pending, then running, then what it came to, which is the parent's next turn."""
    house.settle(max_slots=1)
    played = house.script("child", ENDINGS[ending])
    command = f"agentsdir spawn --name child --provider counted -o {played} 'work'"
    parent = house.new("parent", "actor", [shell("spawn", command)], [say("it is heard")])
    running = house.start("send", parent, "go")
    if ending == "abort":
        child = until(lambda: [a for a in house.logs() if a != parent], "that there is a child")[0]
        stop(house, child, ending)
    assert house.end(running).code == 0
    assert house.said(parent) == ["it is heard"]
    settled(house, f"deferred-spawn-{ending}")


@pytest.mark.feature("S-09")
def test_a_child_waits_for_a_slot_that_another_process_was_quicker_to_take(house: House) -> None:
    """The sender of its parent's message was not to wait; what follows from the turn is."""
    house.settle(max_slots=1)
    played = house.script("child", [say("done")])
    command = f"agentsdir spawn --name child --provider counted -o {played} 'work'"
    parent = house.new("parent", "actor", [shell("spawn", command), sleep(1)], [say("heard")])
    busy = house.new("busy", "counted", [say("busy"), sleep(600)])
    running = house.start("send", parent, "go")
    child = house.wait_for(parent, "spawn.requested")["child"]
    turn = house.folder_of(child) / ".turn"
    with locks.hold(turn):
        house.wait_for(parent, "message.delivered")
        quicker = house.start("send", busy, "--wait", "-1", "go")
        house.wait_said(busy, "busy")
    until(lambda: locks.is_held(turn) or running.poll() is not None, "that the child is looked at")
    house.ok("interrupt", busy)
    assert (house.end(running).code, house.end(quicker).code) == (0, 130)
    assert (house.said(child), house.said(parent)) == (["done"], ["heard"])
    house.quiet()
    assert faults(house, slots=1) == []


@pytest.mark.parametrize("ending", ["error", "abort"])
@pytest.mark.feature("S-11")
def test_a_turn_that_fails_lets_no_child_run(house: House, ending: str) -> None:
    """What it asked for is dropped: the child is closed, and the block says so."""
    house.settle(max_slots=1)
    command = "agentsdir spawn --name child --provider echo 'work'"
    parent = house.new("parent", "actor", [shell("spawn", command), *ENDINGS[ending]])
    running = house.start("send", parent, "go")
    stop(house, parent, ending)
    assert house.end(running).code == CODES[ending]
    settled(house, f"dropped-spawn-{ending}")
