"""Messages that others put into an inbox: each is run once, by a process, its answer found."""

from __future__ import annotations

import pytest
from house import House, fail, say, shell, sleep
from oracle import faults

pytestmark = pytest.mark.feature("G-06", "A-02")
ID = "m" + "1" * 23


def test_a_repeat_is_no_second_message(house: House) -> None:
    """The answer comes from the log; other words, or another kind of id, are refused."""
    agent = house.new("one", "counted", [say("done")])
    sent = ("send", agent, "--message-id", ID)
    assert [house.do(*sent, "go").out for _ in range(2)] == ["done\n"] * 2
    assert (house.asked(agent), len(house.of(agent, "turn.start"))) == (["go"], 1)
    differs = house.do(*sent, "stop", "--json")
    assert (differs.code, differs.error["kind"]) == (2, "message-differs")
    for command in ("send", "queue"):
        bad = house.do(command, agent, "--message-id", "first", "go", "--json")
        assert (bad.code, bad.error["kind"]) == (2, "bad-id")
    assert faults(house, slots=4) == []


def test_what_failed_is_run_again_only_when_a_command_says_so(house: House) -> None:
    """`--retry` sends the same words as a new message; one that was answered is not retried."""
    agent = house.new("one", "counted", [fail()], [say("done")])
    first = house.do("send", agent, "go", "--message-id", ID)
    assert first.code == 14
    assert house.do("send", agent, "go", "--message-id", ID).code == 14
    again = house.do("send", agent, "--retry", ID)
    assert (again.code, again.out) == (0, "done\n")
    assert house.asked(agent) == ["go", "go"]
    (retried,) = [one for one in house.of(agent, "message.enqueued") if one.get("retry_of")]
    assert retried["retry_of"] == ID
    refused = house.do("send", agent, "--retry", retried["message_id"], "--json")
    assert (refused.code, refused.error["kind"]) == (13, "not-failed")
    assert faults(house, slots=4) == []


def test_a_busy_agent_is_queued_to_and_drained(house: House) -> None:
    """Who sends to it waits and has its own answer; what is queued before is run before."""
    agent = house.new(
        "one", "counted", [say("busy"), sleep(1)], [say("second")], [say("third")], [say("last")]
    )
    first = house.start("send", agent, "one")
    house.wait_said(agent, "busy")
    queued = house.do("queue", agent, "two").out.strip()
    away = house.ok("send", agent, "--no-wait", "three")
    mine = house.end(house.start("send", agent, "four"))
    assert (house.end(first).out, mine.out) == ("busy\n", "last\n")
    house.quiet()
    assert [one["message_ids"] for one in house.of(agent, "turn.start")][1:3] == [[queued], [away]]
    assert house.asked(agent) == ["one", "two", "three", "four"]
    assert faults(house, slots=4) == []


def test_a_turn_that_takes_too_long_is_ended(house: House) -> None:
    """With `--timeout`, as aborted, and the next message is answered."""
    agent = house.new("one", "counted", [say("busy"), sleep(600)], [say("done")])
    late = house.end(house.start("send", agent, "--timeout", "0.3", "--json", "go"))
    assert (late.code, late.error["kind"]) == (124, "turn-timeout")
    assert house.of(agent, "turn.aborted")[0]["reason"] == "timeout"
    assert house.ok("send", agent, "go") == "done"
    assert faults(house, slots=4) == []


def test_what_one_agent_says_for_another_is_answered_to_that_one(house: House) -> None:
    """From outside, with `--from` and `--sync`: the answer is the other's next turn."""
    asker = house.new("asker", "counted", [say("heard")])
    helper = house.new("helper", "counted", [say("help")])
    house.ok("send", "--from", asker, "--to", helper, "--sync", "please")
    assert (house.said(helper), house.said(asker)) == (["help"], ["heard"])
    (answer,) = house.of(asker, "message.enqueued")
    assert (answer["sender"], answer["kind"]) == (helper, "system")
    assert faults(house, slots=4) == []


def test_where_every_slot_is_held_a_message_waits(house: House) -> None:
    """For a slot as for a turn: for ever, or for the time given, and then it is exit 11."""
    house.settle(max_slots=1)
    busy = house.new("busy", "counted", [say("busy"), sleep(600)])
    idle = house.new("idle", "counted", [say("done")])
    first = house.start("send", busy, "go")
    house.wait_said(busy, "busy")
    for wait in (("--wait", "0"), ("--wait", "0.1")):
        held = house("send", idle, *wait, "go", "--json")
        assert (held.code, held.error["kind"]) == (11, "slots-full")
    assert house.of(idle, "turn.start") == []
    waiting = house.start("send", idle, "go")
    house.ok("interrupt", busy)
    assert house.end(waiting).out == "done\n"
    assert len(house.of(idle, "turn.start")) == 3
    house.end(first)
    assert faults(house, slots=1) == []


def test_what_a_turn_left_running_cannot_speak_for_it(house: House) -> None:
    """A command that carries the marks of a turn that is over is refused, and nothing is sent."""
    agent = house.new("one", "actor", [shell("env", "env | grep ^AGENTSDIR_")])
    other = house.new("other", "counted", [say("done")])
    house.ok("send", agent, "go")
    (turn,) = house.of(agent, "turn.start")
    marks = {"AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": turn["turn_id"]}
    for command in (("send", other, "go"), ("spawn", "go")):
        late = house(*command, "--json", **marks)
        assert (late.code, late.error["kind"]) == (13, "turn-over"), late
    assert house.asked(other) == []
    assert len(house.logs()) == 2
