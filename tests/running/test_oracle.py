"""The oracle sees each of the faults that it is there for, and none where there is none."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from house import Record
from oracle import faults_of

Logs = dict[str, list[Record]]


def logs_of(**events: list[tuple[str, dict[str, Any]]]) -> Logs:
    """Return logs with these events, one after another."""
    made: Logs = {}
    for number, (agent, told) in enumerate(events.items()):
        made[agent] = [
            {"seq": seq, "ts": f"2026-01-02T03:{number:02}:{seq:02}.000000Z", "event": event,
             "data": deepcopy(data)}
            for seq, (event, data) in enumerate(told, 1)
        ]  # fmt: skip
    return made


def message(name: str, sender: str = "cli", text: str = "hi", **more: Any) -> tuple[str, Any]:
    """Return that a message was enqueued."""
    kind = "user" if sender == "cli" else "system"
    content = [{"type": "text", "text": text}]
    return "message.enqueued", {
        "message_id": name, "sender": sender, "kind": kind, "content": content, **more
    }  # fmt: skip


def turn(name: str, end: str, outcome: str, **more: Any) -> list[tuple[str, Any]]:
    """Return a turn of the message of that name, and its delivery."""
    return [
        ("turn.start", {"turn_id": f"t-{name}", "message_ids": [name]}),
        (end, {"turn_id": f"t-{name}", **more}),
        ("message.delivered", {"message_id": name, "outcome": outcome}),
    ]


def state(before: str, after: str) -> tuple[str, Any]:
    """Return a transition."""
    return "session.state", {"from": before, "to": after, "reason": "send"}


def block(status: str) -> tuple[str, Any]:
    """Return the block of the child at a status."""
    data = {"id": "spawn:child", "type": "subagent", "subagentId": "child", "status": status}
    return "block", {"turn_id": None, "block": data}


PERSON = ("session.created", {"descriptor": {"type": "user", "connector": "chat"}})
CHILD = (
    "session.created",
    {"descriptor": {"type": "subagent", "name": "kid", "parentAgentId": "person"}},
)
NOTICE = message("told", "child", "Subagent kid (child) failed: broken.", notice=True, reply_to="c")


def sound() -> Logs:
    """Return the logs of a person's agent whose child fails, which it is told."""
    return logs_of(
        person=[
            PERSON,
            state("created", "active"),
            message("a"),
            message("b"),
            *turn("a", "turn.complete", "completed", response="yes"),
            ("outgoing", {"message_id": "o-a", "in_reply_to": "a", "text": "yes"}),
            ("outgoing.delivered", {"message_id": "o-a"}),
            *turn("b", "turn.complete", "completed", response=""),
            block("pending"),
            block("running"),
            state("active", "suspended"),
            block("error"),
            ("agent.spawned", {"child": "child", "name": "kid", "status": "error"}),
            NOTICE,
            state("suspended", "active"),
            *turn("told", "turn.complete", "completed", response=""),
        ],
        child=[
            CHILD,
            message("c", "person", spawn=True),
            ("turn.start", {"turn_id": "t-c", "message_ids": ["c"]}),
            ("turn.error", {"turn_id": "t-c", "kind": "broken"}),
            ("message.delivered", {"message_id": "c", "outcome": "failed"}),
        ],
    )


def test_a_sound_house_has_no_faults() -> None:
    """Nothing is wrong with a failure that everybody was told of."""
    assert faults_of(sound(), 1) == []


def swap(agent: str, one: int, other: int) -> Callable[[Logs], None]:
    """Return what exchanges the contents of two records."""

    def change(logs: Logs) -> None:
        log = logs[agent]
        for name in ("event", "data"):
            log[one][name], log[other][name] = log[other][name], log[one][name]

    return change


def drop(agent: str, event: str) -> Callable[[Logs], None]:
    """Return what takes the first record of a kind away, without a gap in the numbers."""

    def change(logs: Logs) -> None:
        log = logs[agent]
        del log[next(at for at, record in enumerate(log) if record["event"] == event)]
        for seq, record in enumerate(log, 1):
            record["seq"] = seq

    return change


def again(agent: str, event: str) -> Callable[[Logs], None]:
    """Return what adds the last record of a kind once more."""

    def change(logs: Logs) -> None:
        found = [record for record in logs[agent] if record["event"] == event][-1]
        logs[agent].append({**deepcopy(found), "seq": len(logs[agent]) + 1})

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (swap("person", 2, 3), "messages were reordered"),
        (again("person", "turn.start"), "was started twice"),
        (again("person", "message.delivered"), "was delivered twice"),
        (drop("person", "message.delivered"), "was never delivered"),
        (drop("person", "turn.complete"), "starts in turn t-a"),
        (drop("person", "message.enqueued"), "never enqueued"),
        (again("person", "message.enqueued"), "was enqueued twice"),
        (drop("person", "outgoing"), "and answered: False"),
        (again("person", "outgoing"), "was answered 2 times"),
        (drop("child", "turn.error"), "has no end"),
        (drop("person", "agent.spawned"), "the events say None"),
        (swap("person", 12, 13), "the block of child went"),
        (lambda logs: logs["person"].pop(1), "has the number"),
        (lambda logs: logs["child"].insert(1, {**logs["person"][1], "seq": 2}), "2 sessions"),
        (lambda logs: logs["person"][-5]["data"].update(sender="cli"), "told 0 times"),
        (lambda logs: logs["person"][-5]["data"].pop("notice"), "that is no notice"),
    ],
)  # fmt: skip
def test_each_fault_is_seen(change: Callable[[Logs], Any], said: str) -> None:
    """One thing is wrong, and it is among what the oracle names."""
    logs = sound()
    change(logs)
    found = faults_of(logs, 1)
    assert [fault for fault in found if said in fault], found
