"""Subagents that run: after the turn that asked for them; their parent gets each end once."""

from __future__ import annotations

import errno
import textwrap
from collections.abc import Callable
from typing import Any

import pytest
from asking import ASKS, Told

from agentsdir.engine.close import close
from agentsdir.engine.dispatcher import run_until, send_message
from agentsdir.engine.inbox import Message, enqueue, retry_message
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.store.layout import AgentPaths, Layout


@pytest.fixture
def parent(stage: Any, program: Callable[..., str]) -> AgentPaths:
    """Return an agent whose program spawns what its prompt names."""
    paths: AgentPaths = stage.new(provider=program(body=ASKS))
    return paths


def told(stage: Any, paths: AgentPaths, child: str) -> list[str]:
    """Return what an agent's log says of one subagent, in order."""
    said = []
    for record in stage.log(paths):
        data = record["data"]
        if data.get("child") == child:
            said.append(f"{record['event']} {data.get('status', '')}".strip())
        elif record["event"] == "block" and data["block"].get("subagentId") == child:
            said.append(f"block {data['block']['status']}")
        elif record["event"] == "message.enqueued" and data["sender"] == child:
            said.append("notice" if data.get("notice") else "answer")
        elif record["event"].startswith("turn."):
            said.append(record["event"])
    return said


def answers(stage: Any, paths: AgentPaths) -> list[str]:
    """Return what an agent answered, turn by turn."""
    log = stage.log(paths)
    return [r["data"]["response"] for r in log if r["event"] == "turn.complete"]


@pytest.mark.feature("S-09", "A-05", "T-04")
def test_a_subagent_that_a_turn_asks_for_runs_after_it_and_its_answer_is_the_next_turn(
    stage: Any, parent: AgentPaths
) -> None:
    """Its id is printed while the turn runs, and nothing of it has run by then."""
    child = stage.send(parent, "fox").response
    assert told(stage, parent, child) == [
        "turn.start",
        "spawn.requested",
        "block pending",
        "turn.complete",
        "block running",
        "agent.spawned running",
        "block success",
        "agent.spawned success",
        "answer",
        "turn.start",
        "turn.complete",
    ]
    assert answers(stage, Layout(stage.root).agent(child)) == ["task of fox"]
    heard = f'heard: <system_message origin="{child}">task of fox</system_message>'
    assert answers(stage, parent)[1:] == [heard]
    state = stage.state(parent)
    assert (state.children, state.pending, state.open_turn) == ({}, [], None)


@pytest.mark.feature("T-10")
def test_of_a_subagent_that_fails_its_parent_hears_once(stage: Any, parent: AgentPaths) -> None:
    """The notice is the answer that it waited for; the parent's own turn is no failure."""
    child = stage.send(parent, "failing").response
    assert told(stage, parent, child)[-6:] == [
        "agent.spawned running",
        "block error",
        "agent.spawned error",
        "notice",
        "turn.start",
        "turn.complete",
    ]
    (heard,) = answers(stage, parent)[1:]
    assert f"Subagent failing ({child}) failed: " in heard
    assert told(stage, parent, child).count("notice") == 1


@pytest.mark.feature("S-09")
def test_several_are_run_in_the_order_in_which_they_were_asked_for(
    stage: Any, parent: AgentPaths
) -> None:
    """Where no process can be started, one after the other."""
    stage.send(parent, "one failing three")
    heard = answers(stage, parent)[1:]
    assert ["task of one" in heard[0], "failing" in heard[1], "task of three" in heard[2]] == [
        True,
        True,
        True,
    ]


@pytest.mark.feature("S-11")
def test_a_failed_turn_runs_nothing_that_it_asked_for(
    stage: Any, program: Callable[..., str]
) -> None:
    """The subagents are closed, and the parent's log says that they were dropped."""
    parent = stage.new(provider=program(body=ASKS + "\nraise RuntimeError('overloaded')"))
    with pytest.raises(ProviderError):
        stage.send(parent, "fox")
    (child,) = [one for one in Layout(stage.root).agent_ids() if one != parent.id]
    assert told(stage, parent, child)[1:] == [
        "spawn.requested",
        "block pending",
        "turn.error",
        "block error",
        "spawn.dropped",
    ]
    paths = find_agent(Layout(stage.root), child)
    assert stage.events(paths)[2:] == ["session.state", "message.delivered"]
    assert stage.state(paths).session.state.value == "terminated"
    assert stage.state(parent).pending == []


def test_an_agent_that_asked_a_subagent_that_is_dropped_gets_a_notice(
    stage: Any, program: Callable[..., str]
) -> None:
    """The parent gets none: its log says that it was dropped."""
    other = stage.new()
    asks = """
from asking import agentsdir
child = agentsdir(self.host, "spawn", "work", "--name", "fox")
Told.on_prompt(child)
raise RuntimeError('overloaded')
yield
"""
    parent = stage.new(provider=program(body="from asking import ASKS, Told\n" + asks))
    asked: list[str] = []

    def ask(child: str) -> None:
        question = Message([{"type": "text", "text": "how much?"}], other.id, sync=True)
        asked.append(enqueue(stage.services, Layout(stage.root).agent(child), question))

    Told.on_prompt = staticmethod(ask)
    with pytest.raises(ProviderError):
        stage.send(parent)
    heard = [r["data"] for r in stage.log(other) if r["event"] == "message.enqueued"]
    assert [one["reply_to"] for one in heard] == asked
    assert stage.events(other)[-1] == "message.delivered"
    assert stage.events(parent).count("message.enqueued") == 1


def test_subagents_that_no_process_can_be_started_for_are_run_in_this_one(
    stage: Any, parent: AgentPaths
) -> None:
    """Each once, and its answer is heard."""

    def start(_paths: AgentPaths, _message: str, *, alone: bool) -> Any:
        raise OSError(errno.EAGAIN, f"no process, alone or not: {alone}")

    services = stage.services._replace(start_turn=start)
    send_message(
        services,
        parent,
        Message([{"type": "text", "text": "one two"}]),
        TurnOptions(lambda _event: None),
    )
    assert [text[:5] for text in answers(stage, parent)[1:]] == ["heard", "heard"]
    assert stage.state(parent).children == {}


def test_what_a_dead_process_was_to_run_is_run_after_the_parents_next_turn(
    stage: Any, parent: AgentPaths
) -> None:
    """Whether it died after the turn that asked, or between two subagents of a shell."""
    task = [{"type": "text", "text": "left"}]
    wanted = SpawnRequest(task, name="left", provider="echo")
    child = create_child(stage.services, parent, wanted, turn_id=None, sync=True)
    other = stage.send(parent, "fox").response
    assert answers(stage, child.paths) == ["left"]
    assert told(stage, parent, child.paths.id).count("answer") == 1
    assert told(stage, parent, other).count("answer") == 1
    assert stage.state(parent).children == {}


def test_one_that_was_removed_before_it_could_run_stops_no_other(
    stage: Any, program: Callable[..., str]
) -> None:
    """Neither its parent nor its siblings."""
    remove = """
import shutil
shutil.rmtree(self.host.marks["AGENTSDIR_ROOT"] + "/agents/" + said)
"""
    asks = ASKS.replace("        yield", textwrap.indent(remove, " " * 8) + "        yield", 1)
    parent = stage.new(provider=program(body=asks))
    assert stage.send(parent, "gone").outcome == "completed"


@pytest.mark.feature("A-06")
def test_a_subagent_is_handed_nothing_of_its_parent(
    stage: Any, program: Callable[..., str]
) -> None:
    """No turn, no system prompt, no transcript: a native session of its own, and its task."""
    body = """
from asking import agentsdir
if str(content) == "spawn":
    said = agentsdir(self.host, "spawn", "task", "--name", "fox")
else:
    said = [str(content), self.spec.system_prompt, sorted(self.spec.transcripts), self.how]
yield self.on_disk("assistant_text", "answer", content=str(said))
"""
    parent = stage.new(provider=program(body=body), system_prompt="You are the parent.")
    stage.send(parent, "my secret")
    child = Layout(stage.root).agent(stage.send(parent, "spawn").response)
    assert answers(stage, child) == ["['task', '', [], 'create']"]
    assert stage.state(child).native["id"] != stage.state(parent).native["id"]
    assert all("secret" not in line for line in child.log.read_text().splitlines())


@pytest.mark.feature("A-06")
def test_who_hears_of_a_parents_turn_hears_nothing_of_its_subagents_turn(
    stage: Any, program: Callable[..., str]
) -> None:
    """Neither as events, nor as a text for the person behind the parent's connector."""
    who = {"connector": "chat", "user": "ann", "channel": "home"}
    parent = stage.new(provider=program(body=ASKS), **who)
    taken: list[str] = []
    services = stage.services._replace(deliver_text=lambda text: taken.append(text["text"]) or True)
    events: list[Any] = []
    send_message(
        services, parent, Message([{"type": "text", "text": "fox"}]), TurnOptions(events.append)
    )
    (child,) = [one for one in Layout(stage.root).agent_ids() if one != parent.id]
    paths = Layout(stage.root).agent(child)
    assert answers(stage, paths) == ["task of fox"]
    blocks = [event["block"] for event in events if "block" in event]
    assert {block["sessionId"] for block in blocks} == {stage.state(parent).native["id"]}
    assert "task of fox" not in [block.get("content") for block in blocks]
    assert taken == answers(stage, parent)
    assert "outgoing" not in stage.events(paths)


def test_a_subagents_own_subagents_run_too(stage: Any, program: Callable[..., str]) -> None:
    """Each answer climbs one level, turn by turn."""
    body = """
from asking import agentsdir
if str(content).isdigit() and int(content):
    said = agentsdir(self.host, "spawn", str(int(content) - 1))
else:
    said = "heard " + str(content).count("<system_message") * "it"
yield self.on_disk("assistant_text", "answer", content=said)
"""
    parent = stage.new(provider=program(body=body))
    stage.send(parent, "3")
    chain = [parent]
    while len(chain) < 4:
        chain.append(Layout(stage.root).agent(answers(stage, chain[-1])[0]))
    assert answers(stage, chain[3]) == ["heard "]
    # Its first answer is all that a subagent's parent waits for.
    assert [answers(stage, paths)[1:] for paths in chain[:3]] == [["heard it"]] * 3
    assert all(stage.state(paths).children == {} for paths in chain)


def left(stage: Any, parent: AgentPaths, *, sync: bool = True) -> AgentPaths:
    """Make a subagent that no process has begun to run."""
    task = [{"type": "text", "text": "left"}]
    wanted = SpawnRequest(task, name="left", provider="echo")
    return create_child(stage.services, parent, wanted, turn_id=None, sync=sync).paths


@pytest.mark.feature("T-10", "A-06")
@pytest.mark.parametrize("sync", [True, False])
def test_a_subagent_that_is_closed_before_it_ran_has_failed_for_its_parent(
    stage: Any, sync: bool
) -> None:
    """Which hears of it once, and by a message only if it waits for one."""
    parent = stage.new()
    child = left(stage, parent, sync=sync)
    close(stage.services, child)
    assert told(stage, parent, child.id) == [
        "agent.spawned running",
        "block pending",
        "block error",
        "agent.spawned error",
        *(["notice"] if sync else []),
    ]
    close(stage.services, child)
    restore_agent(stage.services, child)
    assert told(stage, parent, child.id).count("agent.spawned error") == 1
    assert stage.state(parent).children == {}


def test_a_task_that_failed_is_said_again_as_the_task_it_was(stage: Any) -> None:
    """Not as something that the parent says to its subagent."""
    wanted = SpawnRequest([{"type": "text", "text": "count"}], provider="script")
    child = create_child(stage.services, stage.new(), wanted, turn_id=None, sync=True)
    quiet = TurnOptions(lambda _event: None)
    with pytest.raises(ProviderError):
        run_until(stage.services, child.paths, child.message_id, quiet)
    with pytest.raises(ProviderError):
        send_message(
            stage.services, child.paths, retry_message(child.paths, child.message_id), quiet
        )
    first, again = [r["data"] for r in stage.log(child.paths) if r["event"] == "message.enqueued"]
    assert again.pop("retry_of") == first["message_id"]
    assert again | {"message_id": first["message_id"]} == first
