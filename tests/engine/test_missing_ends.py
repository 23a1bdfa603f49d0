"""A parent that could not get an end at the time gets it by its restoration, once (T-10)."""

from __future__ import annotations

from typing import Any

import pytest

from agentsdir.engine.close import archive_agent, remove_agent, unarchive_agent
from agentsdir.engine.recovery import missing_child_steps
from agentsdir.engine.restore import restore_agent

pytestmark = pytest.mark.feature("T-10")


def spawned(stage: Any, parent: Any, text: str = "task") -> Any:
    """Return a subagent whose first prompt waits, as its parent's log knows it."""
    child = stage.new(kind="subagent", parent=parent.id, name="child")
    stage.append(
        child,
        "message.enqueued",
        {
            "message_id": stage.ids.agent(),
            "sender": parent.id,
            "kind": "user",
            "content": [{"type": "text", "text": text}],
            "spawn": True,
            "sync": True,
        },
    )
    stage.append(parent, "agent.spawned", {"child": child.id, "name": "child", "status": "running"})
    return child


def told(stage: Any, parent: Any) -> list[tuple[str, str]]:
    """Return what the parent knows: how the subagent ended, and what it was sent."""
    said = [
        ("ended", r["data"]["status"])
        for r in stage.log(parent)
        if r["event"] == "agent.spawned" and r["data"]["status"] != "running"
    ]
    return said + [("sent", m["content"][0]["text"]) for m in stage.state(parent).pending]


def test_an_archived_parent_gets_the_end_when_it_is_back(stage: Any) -> None:
    """The block, the event and the answer, from the subagent's own log; and only once."""
    parent = stage.new()
    child = spawned(stage, parent)
    archive_agent(stage.services, parent)
    stage.send(child, "and more")
    unarchive_agent(stage.services, stage.services.layout.agent(parent.id, archived=True))
    assert told(stage, parent) == []

    for _ in range(2):
        restore_agent(stage.services, parent)

    assert told(stage, parent) == [("ended", "success"), ("sent", "task")]
    (block,) = [r["data"]["block"] for r in stage.log(parent) if r["event"] == "block"]
    assert (block["status"], block["output"]) == ("success", "task")


def test_a_subagent_that_was_removed_has_ended(stage: Any) -> None:
    """With an error that says so; one that still has to run, or is archived, has not."""
    parent = stage.new()
    child = spawned(stage, parent)
    restore_agent(stage.services, parent)
    assert told(stage, parent) == []
    archive_agent(stage.services, child)
    restore_agent(stage.services, parent)
    assert told(stage, parent) == []
    unarchive_agent(stage.services, stage.services.layout.agent(child.id, archived=True))

    remove_agent(stage.services, child)
    for _ in range(2):
        restore_agent(stage.services, parent)

    assert told(stage, parent) == [("ended", "error")]
    assert stage.state(parent).children == {}


def test_a_subagent_that_was_reported_and_removed_since_the_parent_was_read_has_not_failed(
    stage: Any,
) -> None:
    """Whether it ended is looked up after it was found to be gone, not before."""
    parent = stage.new()
    child = spawned(stage, parent)
    before = stage.state(parent)
    stage.send(child, "more")
    assert told(stage, parent)[0] == ("ended", "success")
    remove_agent(stage.services, child)

    assert before.children
    assert missing_child_steps(stage.services.layout, parent, before) == []
