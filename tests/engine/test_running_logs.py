"""`validate` on the logs of running sessions: what may follow what (SPEC.md, "Events")."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentsdir.engine.restore import restore_agent
from agentsdir.engine.validate.files import validate
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.log import append_record

TURN, MESSAGE, OTHER = "t" * 24, "m" * 24, "n" * 24
CHILD = {"child": "c" * 24, "name": "kid"}
CONTENT = [{"type": "text", "text": "hi"}]
TEXT = {"connector": "c", "userId": "u", "channelId": "x", "text": "hi", "in_reply_to": None}

Said = tuple[str, dict[str, Any]]
ASKED = ("abort.requested", {"turn_id": TURN, "reason": "interrupt"})
CLEARED = ("abort.cleared", {"turn_id": TURN})
ABORTED = ("turn.aborted", {"turn_id": TURN, "reason": "interrupt"})
CLOSED = ("session.state", {"from": "active", "to": "terminated", "reason": "close"})
REQUESTED = ("spawn.requested", {**CHILD, "turn_id": TURN})
RUNNING = ("agent.spawned", {**CHILD, "status": "running"})
DONE = ("agent.spawned", {**CHILD, "status": "success"})
DROPPED = ("spawn.dropped", {**CHILD, "reason": "no"})
SENT = ("message.sent", {"message_id": OTHER, "to": "a" * 24, "turn_id": TURN})
OUTGOING = ("outgoing", {"message_id": OTHER, **TEXT})
TAKEN = ("outgoing.delivered", {"message_id": OTHER})
FALLBACK = {"turn_id": TURN, "from": "a", "to": "b", "reason": "no", "attempt": 2}
SYNCED = {"files": [{"path": "x", "role": "main", "size": 0, "sha256": "0" * 64}]}


def enqueued(message: str) -> Said:
    """Return a message that is left."""
    data = {"message_id": message, "sender": "cli", "kind": "user", "content": CONTENT}
    return "message.enqueued", data


def delivered(message: str, outcome: str = "aborted") -> Said:
    """Return the end of a message."""
    return "message.delivered", {"message_id": message, "outcome": outcome}


def block(turn: str | None) -> Said:
    """Return a block of a turn."""
    fields = {"type": "assistant_text", "id": "b", "conversationId": "main", "content": "x"}
    rest = {"sessionId": "s", "timestamp": "2026-01-02T03:04:05Z", "source": None}
    return "block", {"turn_id": turn, "block": {**fields, **rest}}


RUNS = (
    ("session.state", {"from": "created", "to": "active", "reason": "send"}),
    enqueued(MESSAGE),
    ("turn.start", {"turn_id": TURN, "message_ids": [MESSAGE], "provider": "echo", "attempt": 1}),
)
IDLE = (*RUNS, ABORTED, delivered(MESSAGE))


def problems(stage: Any, records: tuple[Said, ...]) -> list[tuple[str, str]]:
    """Return (id, pointer) of what is wrong with a log that any program could have written."""
    paths = stage.new()
    for event, data in records:
        state = read_agent(paths, whole=True).state
        append_record(paths.log, state.position, event, data, stage.now(), state.session.id, Disk())
    found = validate([Path(paths.log)])
    return [(problem.id, problem.pointer or "") for problem in found]


SOUND: dict[str, tuple[Said, ...]] = {
    "dropped before its turn": (*IDLE, enqueued(OTHER), delivered(OTHER)),
    "an interrupted turn": (*RUNS, ASKED, ABORTED, delivered(MESSAGE)),
    "asked, cleared, asked again": (*RUNS, ASKED, CLEARED, ASKED, ABORTED, delivered(MESSAGE)),
    "asked for and run": (*RUNS, REQUESTED, ABORTED, delivered(MESSAGE), RUNNING, DONE),
    "asked for and dropped": (*RUNS, REQUESTED, DROPPED, ABORTED, delivered(MESSAGE)),
    "a message to another agent": (*RUNS, SENT, ABORTED, delivered(MESSAGE)),
    "a text that was taken": (*IDLE, OUTGOING, TAKEN),
    "closed at work": (*RUNS, ASKED, CLOSED, block(TURN), ABORTED, delivered(MESSAGE)),
    "closed with a message": (*IDLE, enqueued(OTHER), CLOSED, delivered(OTHER)),
    "a text taken after all": (*IDLE, OUTGOING, CLOSED, TAKEN),
    "closed in the middle of a sync": (*IDLE, CLOSED, ("transcript.synced", SYNCED)),
}


@pytest.mark.parametrize("records", SOUND.values(), ids=SOUND)
def test_what_running_sessions_write_is_sound(stage: Any, records: tuple[Said, ...]) -> None:
    """No problem but that the files which the log names were never there."""
    assert problems(stage, records) == []


BROKEN: dict[str, tuple[tuple[Said, ...], tuple[str, str]]] = {
    "a turn that is over is asked to end": ((*IDLE, ASKED), ("turn-order", "/data/turn_id")),
    "nothing was asked": ((*RUNS, CLEARED), ("turn-order", "/data/turn_id")),
    "cleared twice": ((*RUNS, ASKED, CLEARED, CLEARED), ("turn-order", "/data/turn_id")),
    "sent by no turn": ((*IDLE, SENT), ("turn-order", "/data/turn_id")),
    "asked for by no turn": ((*IDLE, REQUESTED), ("turn-order", "/data/turn_id")),
    "another provider for no turn": (
        (*IDLE, ("provider.fallback", FALLBACK)),
        ("turn-order", "/data/turn_id"),
    ),
    "the same message twice": ((*IDLE, enqueued(MESSAGE)), ("turn-order", "/data/message_id")),
    "completed without a turn": (
        (*IDLE, enqueued(OTHER), delivered(OTHER, "completed")),
        ("turn-order", "/data/outcome"),
    ),
    "runs twice": ((*IDLE, RUNNING, RUNNING), ("spawn-order", "/data/child")),
    "asked for while it runs": ((*RUNS, RUNNING, REQUESTED), ("spawn-order", "/data/child")),
    "runs after its end": ((*IDLE, RUNNING, DONE, RUNNING), ("spawn-order", "/data/child")),
    "dropped while it runs": ((*IDLE, RUNNING, DROPPED), ("spawn-order", "/data/child")),
    "a text twice": ((*IDLE, OUTGOING, OUTGOING), ("outgoing-order", "/data/message_id")),
    "taken twice": ((*IDLE, OUTGOING, TAKEN, TAKEN), ("outgoing-order", "/data/message_id")),
    "a message for a closed agent": ((*IDLE, CLOSED, enqueued(OTHER)), ("after-close", "/event")),
    "a block after the turn": ((*IDLE, CLOSED, block(None)), ("after-close", "/event")),
    "a block of no turn": ((*RUNS, CLOSED, block(None)), ("after-close", "/event")),
    "a text after the end": ((*RUNS, CLOSED, OUTGOING), ("after-close", "/event")),
}


@pytest.mark.parametrize(("records", "problem"), BROKEN.values(), ids=BROKEN)
def test_what_cannot_follow_is_named(
    stage: Any, records: tuple[Said, ...], problem: tuple[str, str]
) -> None:
    """Once, with its place in the record."""
    assert problems(stage, records) == [problem]


def test_a_call_that_no_process_could_answer_stays_as_it_is(stage: Any) -> None:
    """The call of a turn whose process died: the turn is ended all the same."""
    paths = stage.new()
    turn = stage.begin_turn(paths)
    call = {"turn_id": turn, "block": {"type": "tool_use", "status": "running"}}
    state = read_agent(paths).state
    append_record(paths.log, state.position, "block", call, stage.now(), state.session.id, Disk())
    restore_agent(stage.services, paths)
    ended = ["turn.aborted", "message.delivered", "session.state"]
    assert stage.events(paths)[-3:] == ended


def test_no_writer_appends_what_a_closed_log_cannot_hold(stage: Any) -> None:
    """Whatever it had read before: the last look is under the lock."""
    paths: AgentPaths = stage.new()
    stage.append(paths, "session.state", {"from": "created", "to": "terminated", "reason": "close"})
    before = stage.log(paths)
    late = [enqueued(OTHER), OUTGOING, RUNNING, ("agent.renamed", {"name": "x"})]
    late.append(("session.state", {"from": "active", "to": "suspended", "reason": "suspend"}))
    for event, data in late:
        with pytest.raises(Exception, match=r"is closed|is terminated, and cannot") as refused:
            stage.append(paths, event, data)
        assert refused.type.__name__ == "SessionStateError"
    assert stage.log(paths) == before
