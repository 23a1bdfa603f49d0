"""What a parent's log says of its subagents, each thing once."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from agentsdir.engine.notices import (
    Step,
    apply_step,
    child_ended_steps,
    child_started_steps,
    completion_steps,
)
from agentsdir.engine.result import Ending
from agentsdir.engine.spawn import SpawnedChild, SpawnRequest, create_child
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.schemas import check

TASK = [{"type": "text", "text": "count"}, {"type": "image", "source": {}}]


class Family:
    """A parent in the middle of a turn, and a subagent that was made in it or outside."""

    def __init__(self, stage: Any, *, deferred: bool) -> None:
        self.stage = stage
        self.layout = Layout(stage.root)
        self.parent: AgentPaths = stage.new()
        self.turn = stage.begin_turn(self.parent)
        made_in = self.turn if deferred else None
        with hold_turn(self.parent):
            self.child: SpawnedChild = create_child(
                stage.services,
                self.parent,
                SpawnRequest(TASK, name="fox"),
                turn_id=made_in,
                sync=deferred,
            )

    def state(self, paths: AgentPaths) -> Any:
        """Return an agent's state."""
        return self.stage.state(paths)

    def take(self, steps: list[Step]) -> list[str]:
        """Take steps of the parent's or the child's; return their events."""
        for step in steps:
            apply_step(self.stage.services, self.parent, self.state(self.parent), step)
        return [step.event for step in steps]

    def begun(self) -> list[Step]:
        """Plan what is said when the subagent begins."""
        return child_started_steps(self.layout, self.state(self.child.paths), TASK)

    def ended(self, output: str, failure: str = "") -> list[Step]:
        """Plan what is said when it has ended."""
        child = self.state(self.child.paths)
        return child_ended_steps(self.layout, child, TASK, output, failure=failure)

    def dropped(self) -> list[Step]:
        """Plan what is done when the parent's turn has failed."""
        ending = Ending("provider-failed", "overloaded")
        return completion_steps(self.layout, self.state(self.parent), self.turn, None, ending)

    def told(self) -> list[tuple[Any, ...]]:
        """Return what the parent's log says of the subagent: block states, and events."""
        said: list[tuple[Any, ...]] = []
        for record in self.stage.log(self.parent):
            data = record["data"]
            if record["event"] == "block":
                block = data["block"]
                assert check("block", block) == []
                said.append((block["status"], block.get("output"), data["turn_id"]))
            elif data.get("child"):
                assert check(f"event-{record['event'].replace('.', '-')}", data) == []
                said.append((record["event"], data.get("status")))
        return said


@pytest.fixture(params=[True, False], ids=["deferred", "outside"])
def family(stage: Any, request: pytest.FixtureRequest) -> Family:
    """Return a parent with a subagent."""
    return Family(stage, deferred=request.param)


@pytest.mark.feature("B-04")
def test_the_block_goes_from_pending_over_running_to_success(stage: Any) -> None:
    """Under one id; only the first is of the turn that asked, for that one is over then."""
    family = Family(stage, deferred=True)
    family.take(family.begun())
    assert family.state(family.parent).children[family.child.paths.id]["status"] == "running"
    family.take(family.ended("3 foxes"))
    assert family.told() == [
        ("spawn.requested", None),
        ("pending", None, family.turn),
        ("running", None, None),
        ("agent.spawned", "running"),
        ("success", "3 foxes", None),
        ("agent.spawned", "success"),
    ]
    blocks = [r["data"]["block"] for r in stage.log(family.parent) if r["event"] == "block"]
    assert {block["id"] for block in blocks} == {f"spawn:{family.child.paths.id}"}
    same = [{**block, "status": "", "output": ""} for block in blocks]
    assert same == [same[0]] * 3
    assert same[0]["input"] == "count\n[image]"
    assert family.state(family.parent).children == {}


@pytest.mark.feature("T-10")
def test_a_subagent_that_the_log_never_named_is_reported_all_the_same(family: Family) -> None:
    """Its spawner died before it could; another process ran it later."""
    lines = family.parent.log.read_bytes().splitlines(keepends=True)
    family.parent.log.write_bytes(b"".join(lines[:-2]))
    family.parent.state.unlink()
    family.take(family.ended("3"))
    assert family.told() == [("success", "3", None), ("agent.spawned", "success")]
    assert family.ended("3") == []


def test_a_parent_that_is_gone_closed_or_unreadable_gets_no_record(family: Family) -> None:
    """And stops no command."""
    closing = {"from": "active", "to": "terminated", "reason": "close"}
    family.stage.append(family.parent, "session.state", closing)
    assert family.begun() == family.ended("3") == []
    family.parent.log.write_bytes(b"{}\n")
    family.parent.descriptor.unlink()
    assert family.begun() == family.ended("x", "x") == []
    shutil.rmtree(family.parent.folder)
    assert family.begun() == family.ended("3") == []


def test_one_that_a_process_runs_already_is_not_dropped(stage: Any) -> None:
    """It was asked for, and a user ran it by hand before the turn failed."""
    family = Family(stage, deferred=True)
    family.take(family.begun())
    assert family.dropped() == []
    family.take(family.ended("3"))
    assert family.dropped() == []


def test_one_whose_folder_is_gone_is_dropped_all_the_same(stage: Any) -> None:
    """There is nothing to close then."""
    family = Family(stage, deferred=True)
    shutil.rmtree(family.child.paths.folder)
    assert family.take(family.dropped()) == ["block", "spawn.dropped"]
    assert family.dropped() == []


def test_a_subagent_outside_any_turn_is_not_dropped_with_one(stage: Any) -> None:
    """It belongs to the shell that waits for it."""
    assert Family(stage, deferred=False).dropped() == []
