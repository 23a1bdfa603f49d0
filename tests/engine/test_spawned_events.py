"""Spawned agents in the live stream of their parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asking import ASKS
from commands import printed

from agentsdir.engine.dispatcher import send_message
from agentsdir.engine.inbox import Message
from agentsdir.engine.session_data import runtime_session
from agentsdir.engine.spawned_events import SpawnedEvents
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.store.layout import AgentPaths

pytestmark = pytest.mark.feature("C-06")


@pytest.fixture
def parent(stage: Any, program: Callable[..., str]) -> AgentPaths:
    """Return an agent whose program spawns what its prompt names."""
    paths: AgentPaths = stage.new(provider=program(body=ASKS))
    return paths


def live(stage: Any, paths: AgentPaths, text: str, *, children: bool) -> list[dict[str, Any]]:
    """Send a text; return the stream events with those of spawned agents, as `send` prints them."""
    events: list[dict[str, Any]] = []
    spawned = SpawnedEvents(stage.services.layout, paths, children=children)

    def take(event: dict[str, Any]) -> None:
        events.extend(spawned.poll())
        events.append(event)

    def look() -> None:
        events.extend(spawned.poll())

    message = Message([{"type": "text", "text": text}])
    send_message(stage.services, paths, message, TurnOptions(take, on_others=look))
    look()
    return events


def said(events: list[dict[str, Any]]) -> list[str]:
    """Return what becomes of subagents' blocks, in order, with the answers of the parent."""
    found = []
    for event in events:
        block = event.get("block", {})
        if str(event.get("blockId")).startswith("spawn:"):
            status = block.get("status") or event["updates"]
            found.append(f"{event['type']} {status}")
        elif block.get("type") == "assistant_text":
            found.append(block["id"].rsplit(":", 1)[-1])
    return found


def test_a_spawned_agent_starts_is_updated_and_completes_in_the_stream_of_its_parent(
    stage: Any, parent: AgentPaths
) -> None:
    """It starts where the tool asked for it, and has completed before its answer is handed on."""
    events = live(stage, parent, "one", children=False)

    assert said(events) == [
        "block_start pending",
        "spawned-one",
        "block_update {'status': 'running'}",
        "block_complete success",
        "answer",
    ]
    assert {event["conversationId"] for event in events} == {"main"}


def test_one_that_fails_and_one_that_is_dropped_complete_with_an_error(
    stage: Any, parent: AgentPaths, program: Callable[..., str]
) -> None:
    """Neither is left open."""
    assert said(live(stage, parent, "failing", children=False))[-2] == "block_complete error"
    stopped = stage.new(provider=program(body=ASKS + "\nraise ProviderError('no')"))
    events: list[dict[str, Any]] = []
    spawned = SpawnedEvents(stage.services.layout, stopped, children=False)
    with pytest.raises(Exception, match="no"):
        stage.send(stopped, "one", on_event=events.append)
    assert said(list(spawned.poll())) == ["block_start pending", "block_complete error"]


def as_runtime(stage: Any, paths: AgentPaths, events: list[dict[str, Any]]) -> bool:
    """Tell whether events leave the threads of spawned agents as runtime data show them."""
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    data = printed(runtime_session(stage.services.layout, paths, stage.state(paths)))
    shown = {one["id"]: one["blocks"] for one in data["subagents"]}
    return {name: reducer.blocks(name) for name in shown} == shown


def test_with_children_their_own_events_make_the_threads_of_runtime_data(
    stage: Any, parent: AgentPaths
) -> None:
    """Between the blocks that open and close them, and before the subagent's block completes."""
    events = live(stage, parent, "one", children=True)

    assert as_runtime(stage, parent, events)
    (child,) = {event["conversationId"] for event in events} - {"main"}
    own = [event for event in events if event["conversationId"] == child]
    assert [event["block"]["type"] for event in own if "block" in event] == [
        "system", "user_message", "assistant_text", "system",
    ]  # fmt: skip
    ends = [event["metadata"] for event in own if event["type"] == "metadata_update"]
    assert [end["stopReason"] for end in ends] == ["end_turn"]
    completed = next(
        e for e in events if e["type"] == "block_complete" and "spawn:" in e["blockId"]
    )
    assert events.index(own[-1]) < events.index(completed)


def test_what_was_spawned_before_is_in_it_only_as_far_as_it_goes_on(
    stage: Any, parent: AgentPaths
) -> None:
    """Nothing of an earlier turn is repeated."""
    live(stage, parent, "one", children=True)
    events = live(stage, parent, "two", children=True)

    assert said(events).count("block_start pending") == 1
    assert len({event["conversationId"] for event in events}) == 2


def test_an_agent_that_is_named_but_was_not_spawned_is_not_read(
    stage: Any, parent: AgentPaths
) -> None:
    """A log from a bundle may name any agent."""
    other = stage.new()
    stage.send(other, "secret")
    spawned = SpawnedEvents(stage.services.layout, parent, children=True)
    block = {
        "type": "subagent", "id": f"spawn:{other.id}", "conversationId": "main", "sessionId": "s",
        "timestamp": None, "subagentId": other.id, "name": "x", "input": "", "status": "success",
        "source": None,
    }  # fmt: skip
    stage.append(parent, "block", {"turn_id": None, "block": block})

    assert "secret" not in str(list(spawned.poll()))
