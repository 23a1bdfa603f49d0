"""One evening of a house that does all of it at once, and what its logs say the next morning."""

from __future__ import annotations

import os
import signal

import orjson
import pytest
from commands import until
from house import House, fail, say, shell, sleep
from oracle import faults

CHAT = ("--connector", "chat", "--user", "ann", "--channel", "home")


@pytest.mark.feature("T-03", "T-04", "T-07", "T-08", "T-10", "T-11", "A-05")
def test_an_evening_ends_with_everybody_answered_once(house: House) -> None:
    """Six agents on four slots, of which one dies in the middle."""
    house.settle(max_slots=4)
    sent = house.folder / "sent"
    house.hook("outgoing", f"cat >>{sent}; echo >>{sent}")

    # Ann writes, and her agent is found again by the next message, which meets it busy.
    user = house.script("user", [say("typing"), sleep(1.5), say("Good evening, Ann.")],
                        [say("Still here.")])  # fmt: skip
    made = ("--provider", "counted", "-o", user)
    hello = house.start("send", *CHAT, *made, "--", "hello")
    ann = until(lambda: next(iter(house.logs()), ""), "that Ann has an agent")
    house.wait_said(ann, "typing")
    again = house.start("send", *CHAT, "--", "are you there?")

    # The nightly run starts two children at once; one of them will die in the middle.
    quick = house.script("quick", [say("counted")])
    slow = house.script("slow", [say("sweeping"), sleep(600)])
    spawn = "agentsdir spawn --provider counted"
    nightly = house.script(
        "nightly",
        [shell("a", f"{spawn} --name counter -o {quick} 'count'"),
         shell("b", f"{spawn} --name sweeper -o {slow} 'sweep'"), say("Both are out.")],
        [say("One is back.")],
        [say("So is the other.")],
        [say("Nothing more.")],
    )  # fmt: skip
    cron = house.start("send", "--cron", "nightly-run", "--provider", "actor", "-o", nightly, "go")

    # The heartbeat's batch, and an agent whose provider fails over to another.
    beat = house.script("beat", [say("Nothing to do.")])
    heart = house.start("send", "--heartbeat", "--provider", "counted", "-o", beat, "batch")
    failing = house.script("failing", [fail("rate-limited")])
    worker = house.ok("new", "--name", "worker", "--provider", "counted", "-o", failing,
                      "--fallback", "echo")  # fmt: skip
    failover = house.start("send", "--wait", "50", worker, "work")

    # A power cut, for the child that sweeps and the process that runs it.
    sweeper = until(lambda: named(house, "sweeper"), "that there is a sweeper")
    house.wait_said(sweeper, "sweeping")
    assert house.end(hello).out == "typing\n\nGood evening, Ann.\n"
    assert house.end(again).out == "Still here.\n"
    assert house.end(heart).out == "Nothing to do.\n"
    assert house.end(failover).out == "work\n"
    for process in house.running():
        os.kill(process.pid, signal.SIGKILL)
    house.end(cron)
    house.ok("queue", ann, "good night")

    # The next morning: nothing is sent again, and what was only queued is run when a command asks.
    house.ok("restore")
    before = house.logs()
    house.ok("restore")
    assert house.logs() == before
    house.run_what_waits()
    house.quiet()

    assert faults(house, slots=4) == []
    assert len(house.logs()) == 6
    (nightly_agent,) = [agent for agent, log in house.logs().items()
                        if log[0]["data"]["descriptor"]["type"] == "cron"]  # fmt: skip
    (failed,) = [text for text in house.asked(nightly_agent) if "sweeper" in text]
    assert failed.endswith("failed: Restored with pending work.")
    (fell,) = house.of(worker, "provider.fallback")
    assert (fell["from"], fell["to"], fell["attempt"]) == ("counted", "echo", 2)
    texts = [orjson.loads(line)["text"] for line in sent.read_bytes().splitlines() if line]
    assert texts == ["typing\n\nGood evening, Ann.", "Still here.", "Inference failed."]
    assert house.ok("outbox") == ""


def named(house: House, name: str) -> str:
    """Return the agent of that name, or nothing."""
    found = [agent for agent, log in house.logs().items() if log[0]["data"].get("name") == name]
    return found[0] if found else ""
