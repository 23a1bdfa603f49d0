"""The oracle finds nothing wrong in the logs of a sound house, and something in spoilt ones."""

from __future__ import annotations

from copy import deepcopy

from house import House, Record, fail, say, shell
from oracle import faults, faults_of

Logs = dict[str, list[Record]]
COUNTED = (
    "message.enqueued", "message.delivered", "turn.start", "turn.complete", "turn.error",
    "outgoing", "agent.spawned",
)  # fmt: skip
"""Events of which one more or one less is a fault; a subagent's, where it has ended."""


def spoilt(logs: Logs, agent: str, at: int, copies: int) -> Logs:
    """Return logs in which a record stands that many times, without a gap in the numbers."""
    log = [*logs[agent][:at], *logs[agent][at : at + 1] * copies, *logs[agent][at + 1 :]]
    return {**logs, agent: [{**record, "seq": seq} for seq, record in enumerate(log, 1)]}


def test_a_record_that_is_lost_doubled_or_reordered_is_a_fault(house: House) -> None:
    """In the logs of a person's agent that gets a notice of its child's failure."""
    played = house.script("child", [fail()])
    spawn = f"agentsdir spawn --name kid --provider counted -o {played} work"
    person = ("--connector", "chat", "--user", "ann", "--channel", "home")
    turns = [say("first")], [say("asking"), shell("a", spawn)], [say("it is heard")]
    agent = house.new("parent", "actor", *turns, options=person)
    house.ok("queue", agent, "one")
    house("send", agent, "two")
    house.quiet()
    assert faults(house, slots=2) == []
    logs = house.logs()

    tried = set()
    for name, log in logs.items():
        for at, record in enumerate(log):
            if record["event"] in COUNTED and record["data"].get("status") != "running":
                for copies in (0, 2):
                    assert faults_of(spoilt(logs, name, at, copies), 2), (copies, record)
                tried.add(record["event"])
    assert tried == {*COUNTED}
    assert "active on 0 slots" in "".join(faults_of(logs, 0))

    reordered = deepcopy(logs)
    first, second = [r for r in reordered[agent] if r["event"] == "message.enqueued"][:2]
    first["data"], second["data"] = second["data"], first["data"]
    assert f"{agent}: messages were reordered" in faults_of(reordered, 2)
