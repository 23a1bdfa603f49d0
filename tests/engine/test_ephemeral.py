"""Ephemeral agents: they stay as long as they have something to do, and then they go."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from agentsdir.engine.close import is_finished, remove_agent, remove_if_finished
from agentsdir.engine.create import fork_agent
from agentsdir.engine.dispatcher import WaitLimits, run_child, run_inbox
from agentsdir.engine.restore import restore_agent
from agentsdir.engine.slots import SessionMultiplexer
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.turn import SlotLease, Turn, TurnOptions
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.store.layout import AgentPaths, Layout


@pytest.fixture
def child(stage: Any) -> AgentPaths:
    """Return an ephemeral subagent with its prompt before it."""
    wanted = SpawnRequest([{"type": "text", "text": "count"}], ephemeral=True)
    return create_child(stage.services, stage.new(), wanted, turn_id=None, sync=False).paths


def is_there(paths: AgentPaths) -> bool:
    """Tell whether an agent's folder stands."""
    return paths.folder.exists()


def work(stage: Any, child: AgentPaths) -> None:
    """Have it do its work and be left where it is, as by a process that dies then."""
    (message,) = stage.state(child).pending
    services, options = stage.services, TurnOptions(lambda _event: None)
    with hold_turn(child) as held:
        acquired = SessionMultiplexer(services).acquire(child, stage.state(child), held)
        Turn(services, child, acquired.state, held, message, options, SlotLease()).run()


@pytest.mark.feature("A-06")
def test_an_ephemeral_agent_goes_when_its_work_is_done_and_not_before(
    stage: Any, child: AgentPaths
) -> None:
    """Its prompt waits, then it has answered; other agents stay, whatever they have done."""
    other = stage.new()
    stage.send(other)
    assert not remove_if_finished(stage.services, child)
    assert stage.send(child, "and that").response == "and that"
    assert not is_there(child)
    assert not remove_if_finished(stage.services, other)
    assert not remove_if_finished(stage.services, child)
    assert list(stage.root.glob("agents/.tmp-*")) == []


def test_one_that_was_given_more_to_do_stays(stage: Any, child: AgentPaths) -> None:
    """What was accepted is not thrown away with the folder."""
    work(stage, child)
    stage.enqueue(child, "and again")
    assert not remove_if_finished(stage.services, child)
    assert is_there(child)


def test_a_message_that_comes_while_it_is_looked_at_keeps_it(stage: Any, child: AgentPaths) -> None:
    """Whether it is done is asked again when no process can write to it any more."""
    work(stage, child)
    stage.enqueue(child, "just in time")
    assert not remove_agent(stage.services, child, only_if=is_finished)
    assert stage.state(child).pending[0]["content"][0]["text"] == "just in time"


def test_one_that_spawned_waits_for_what_it_spawned(stage: Any, child: AgentPaths) -> None:
    """A subagent whose parent is gone has no agent to report to."""
    work(stage, child)
    wanted = SpawnRequest([{"type": "text", "text": "count more"}])
    grandchild = create_child(stage.services, child, wanted, turn_id=None, sync=False)
    assert not remove_if_finished(stage.services, child)
    ended = {"child": grandchild.paths.id, "name": grandchild.name, "status": "success"}
    stage.append(child, "agent.spawned", ended)
    assert remove_if_finished(stage.services, child)


def test_one_that_a_process_holds_is_left_and_restored_away(stage: Any, child: AgentPaths) -> None:
    """A boot removes it like what a dead process left."""
    work(stage, child)
    with hold_turn(child):
        assert not remove_if_finished(stage.services, child)
    says = "removed: it was ephemeral, and its work is over"
    assert restore_agent(stage.services, child, dry_run=True).actions[-1] == says
    assert is_there(child)
    assert restore_agent(stage.services, child).actions[-1] == says
    assert not is_there(child)


def test_one_that_crashed_goes_once_its_parent_knows(stage: Any, child: AgentPaths) -> None:
    """Its last words are in the parent's log."""
    message, turn = stage.state(child).pending[0]["messageId"], stage.ids.agent()
    stage.append(child, "session.state", {"from": "created", "to": "active", "reason": "send"})
    start = {"turn_id": turn, "message_ids": [message], "provider": "echo", "attempt": 1}
    stage.append(child, "turn.start", start)
    parent = Layout(stage.root).agent(stage.state(child).parent)
    restore_agent(stage.services, child)
    assert not is_there(child)
    (told,) = stage.state(parent).pending
    assert "failed: Restored with pending work." in told["content"][0]["text"]


def test_a_fork_of_an_ephemeral_agent_stays(stage: Any, child: AgentPaths) -> None:
    """A user who makes one wants to have it."""
    work(stage, child)
    fork = Layout(stage.root).agent(fork_agent(stage.services, child, login="me").agent_id)
    stage.send(fork)
    assert not stage.state(fork).ephemeral
    assert not remove_if_finished(stage.services, fork)


@pytest.mark.feature("A-06")
def test_a_caller_that_waits_for_one_that_another_ran_gets_its_answer(stage: Any) -> None:
    """From its parent's log, for its own is gone; there the reason of a failure is, too."""
    parent = stage.new()
    how = {"fine": "echo", "failing": "script"}
    made = {
        name: create_child(
            stage.services,
            parent,
            SpawnRequest(
                [{"type": "text", "text": "count"}], name, provider=provider, ephemeral=True
            ),
            turn_id=None,
            sync=False,
        )
        for name, provider in how.items()
    }
    quiet = TurnOptions(lambda _event: None)
    for child in made.values():
        with suppress(ProviderError):
            run_inbox(stage.services, child.paths, quiet)
        assert not is_there(child.paths)
    result = run_child(stage.services, made["fine"], quiet, WaitLimits())
    assert (result.outcome, result.response) == ("completed", "count")
    with pytest.raises(ProviderError, match="Subagent failing"):
        run_child(stage.services, made["failing"], quiet, WaitLimits())


def test_a_caller_that_comes_for_an_answer_before_the_agent_goes_gets_it(stage: Any) -> None:
    """And then removes it: the waiting caller kept the one that ran it from that."""
    wanted = SpawnRequest([{"type": "text", "text": "count"}], provider="echo", ephemeral=True)
    made = create_child(stage.services, stage.new(), wanted, turn_id=None, sync=False)
    work(stage, made.paths)
    result = run_child(stage.services, made, TurnOptions(lambda _event: None), WaitLimits())
    assert (result.outcome, result.response) == ("completed", "count")
    assert not is_there(made.paths)
