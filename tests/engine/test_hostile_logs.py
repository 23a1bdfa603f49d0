"""Logs that others wrote: what they say of other agents, and values that no writer writes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentsdir.engine.close import close
from agentsdir.engine.dispatcher import run_inbox
from agentsdir.engine.in_turn import queue_from_turn
from agentsdir.engine.inbox import Message, enqueue, text_message
from agentsdir.engine.lookup import inspection, list_row
from agentsdir.engine.notices import pending_children
from agentsdir.engine.outbox import undelivered
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import SessionMultiplexer
from agentsdir.engine.spawn import read_agent_file
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import AgentsdirError, Invalid, ProviderError, SessionStateError
from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.derived import encode_document

TURN = "t" * 24
MESSAGE = "m" * 24
QUIET = TurnOptions(lambda _event: None)


def foreign(paths: Any, event: str, data: dict[str, Any]) -> None:
    """Append a record that no writer of ours would."""
    last = paths.log.read_bytes().splitlines()[-1]
    record = json.loads(last)
    record |= {"seq": record["seq"] + 1, "event": event, "data": data, "prev": short_hash(last)}
    with paths.log.open("ab") as log:
        log.write(json.dumps(record).encode() + b"\n")


def begin_turn(paths: Any) -> None:
    """Leave a turn open whose process is gone."""
    content = [{"type": "text", "text": "do"}]
    said = {"message_id": MESSAGE, "sender": "cli", "kind": "user", "content": content}
    foreign(paths, "message.enqueued", said)
    foreign(paths, "session.state", {"from": "created", "to": "active", "reason": "send"})
    start = {"turn_id": TURN, "message_ids": [MESSAGE], "attempt": 1, "provider": "echo"}
    foreign(paths, "turn.start", start)


def test_a_log_that_calls_another_agent_its_subagent_has_no_say_over_it(stage: Any) -> None:
    """Neither does it close that one when its turn crashed, nor run what waits for it."""
    victim, evil = stage.new(), stage.new()
    message = enqueue(stage.services, victim, Message(text_message("work"), spawn=True))
    begin_turn(evil)
    foreign(evil, "spawn.requested", {"child": victim.id, "name": "kid", "turn_id": TURN})
    assert pending_children(stage.services.layout, stage.state(evil)) == []
    before = victim.log.read_bytes()

    restore_agent(stage.services, evil)

    assert victim.log.read_bytes() == before
    assert [one["messageId"] for one in stage.state(victim).pending] == [message]
    assert stage.events(evil)[-4:-1] == ["block", "spawn.dropped", "message.delivered"]


def test_failures_do_not_go_round_for_ever_where_the_parents_do(stage: Any) -> None:
    """Each turn that fails would be told to the other's parent, whose turn fails, and so on."""
    top = stage.new()
    one = stage.new(kind="subagent", parent=top.id, name="one")
    two = stage.new(kind="subagent", parent=top.id, name="two")
    for paths, parent in ((one, two), (two, one)):
        record = json.loads(paths.log.read_bytes())
        record["data"]["descriptor"]["parentAgentId"] = record["data"]["parentAgentId"] = parent.id
        record["data"]["provider"] = "nobody"
        paths.log.write_bytes(json.dumps(record).encode() + b"\n")
        paths.state.unlink()

    with pytest.raises(ProviderError):
        stage.send(one)

    assert "message.enqueued" not in stage.events(two)


def test_answers_to_messages_of_one_id_are_two_messages(stage: Any) -> None:
    """An id is one agent's own; who asked two agents under one id gets both answers."""
    asker, one, two = stage.new(), stage.new(), stage.new()
    for paths in (one, two):
        asked = Message(text_message("how?"), asker.id, sync=True, id=MESSAGE)
        enqueue(stage.services, paths, asked)
        run_inbox(stage.services, paths, QUIET, alone=True)

    assert [answer["sender"] for answer in stage.state(asker).pending] == [one.id, two.id]


ODD: list[Any] = [5, [[]]]
RECORDS: dict[str, tuple[str, dict[str, Any]]] = {
    "a message": (
        "message.enqueued",
        {"message_id": MESSAGE, "sender": "cli", "kind": "user", "content": []},
    ),
    "a request to spawn": (
        "spawn.requested",
        {"child": "c" * 24, "name": "kid", "turn_id": TURN},
    ),
    "a spawned agent": (
        "agent.spawned",
        {"child": "c" * 24, "name": "kid", "status": "running"},
    ),
    "a sent message": ("message.sent", {"message_id": MESSAGE, "to": "c" * 24, "turn_id": TURN}),
    "a text": ("outgoing", {"message_id": MESSAGE, "connector": "c", "text": "t"}),
}


@pytest.mark.parametrize(("event", "data"), RECORDS.values(), ids=RECORDS)
def test_a_record_of_odd_types_is_named_and_takes_part_in_nothing(
    stage: Any, event: str, data: dict[str, Any]
) -> None:
    """In place of each of its texts: the agent goes on to its end, and reading names the line."""
    for field in data:
        for odd in ODD:
            paths = stage.new()
            begin_turn(paths)
            foreign(paths, event, {**data, field: odd})
            reading = read_agent(paths, whole=True)
            with suppress(AgentsdirError):
                stage.send(paths, "go on")
            list(undelivered(paths, stage.state(paths).undelivered))
            json.dumps([list_row(paths, reading.state), inspection(paths, reading)])
            restore_agent(stage.services, paths)
            close(stage.services, paths)
            assert stage.state(paths).session.state == "terminated", (field, odd)
            if field not in ("connector", "text"):
                assert [finding.id for finding in reading.findings] == ["bad-data"], (field, odd)


@pytest.mark.parametrize(
    "change",
    [
        {"pending": [{"messageId": MESSAGE, "sender": [], "kind": "user", "content": []}]},
        {"pending": [{"messageId": MESSAGE, "sender": "x", "kind": "user", "content": ["x"]}]},
        {"children": {"c" * 24: {"name": 5, "status": "pending"}}},
        {"descriptor": {"type": 5}},
    ],
)
def test_a_state_that_the_fold_never_makes_is_not_believed(
    stage: Any, change: dict[str, Any]
) -> None:
    """Also where its digest is right: the log is folded instead."""
    paths = stage.new()
    stage.send(paths)
    said = {**json.loads(paths.state.read_bytes()), **change}
    del said["digest"]
    paths.state.write_bytes(encode_document({**said, "digest": short_hash(encode_document(said))}))

    assert read_agent(paths).state == read_agent(paths, whole=True).state


def test_no_session_has_been_idle_for_longer_than_there_are_years(stage: Any) -> None:
    """Whatever settings.toml says, it is a number of seconds."""
    stage.send(stage.new())
    for seconds in (1e11, 1e300, 10**400):
        assert SessionMultiplexer(stage.services).sweep(seconds) == []


def test_a_link_in_place_of_an_entry_is_refused_before_the_turn(stage: Any, tmp_path: Path) -> None:
    """Not after it, when the answer is there, and would be lost to an error."""
    paths = stage.new()
    stage.send(paths)
    entry = stage.services.layout.slots / paths.id
    entry.unlink()
    outside = tmp_path / "outside"
    outside.write_text("mine")
    entry.symlink_to(outside)

    with pytest.raises(Invalid, match="is no regular file"):
        stage.send(paths, "again")

    assert stage.events(paths)[-1] == "message.enqueued"
    assert outside.read_text() == "mine"


def test_an_integer_too_long_to_show_is_refused(tmp_path: Path) -> None:
    """Hexadecimal ones are read, whatever their length."""
    path = tmp_path / "agent.toml"
    path.write_text(f'prompt = "{{{{a}}}}"\n[props]\na = 0x{"f" * 5000}\n')
    with pytest.raises(Invalid, match="4300 digits"):
        read_agent_file(path, {})


def test_what_a_turn_queues_is_said_by_its_agent(stage: Any, program: Callable[..., str]) -> None:
    """And not by the user at the terminal; once the turn is over it says nothing."""
    heard = stage.new()
    body = f"""
    from asking import agentsdir
    said = agentsdir(self.host, "queue", {heard.id!r}, "from the turn")
    yield self.on_disk("assistant_text", "answer", content=said)
    """
    paths = stage.new(provider=program(body=textwrap.dedent(body)))

    message = stage.send(paths).response

    (said,) = stage.state(heard).pending
    assert (said["messageId"], said["sender"], said["kind"]) == (message, paths.id, "system")
    turn = next(r["data"]["turn_id"] for r in stage.log(paths) if r["event"] == "turn.start")
    late = Message(text_message("later"), paths.id)
    with pytest.raises(SessionStateError, match="is over"):
        queue_from_turn(stage.services, paths, turn, heard, late)
