"""Records that are planned first and added later, one at a time (decision D3)."""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.engine.world import World
from agentsdir.formats.directory.agent import Reading, write_agent
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.records import Record
from agentsdir.formats.errors import Invalid


class Step(NamedTuple):
    """One record to add, and what a report says of it.

    `to` is the agent it is for when that is another one; a step without an event only says
    something.
    """

    says: str
    event: str = ""
    data: dict[str, Any] | None = None
    to: AgentPaths | None = None


def take_step(world: World, paths: AgentPaths, state: AgentState, step: Step) -> AgentState:
    """Add one record, each under the lock of its own agent alone; return the agent's new state."""
    if step.to is not None:
        _tell(world, step.to, step.event, step.data or {})
    elif step.event:
        with write_agent(paths, disk=world.disk, known=state) as writer:
            writer.append(step.event, step.data or {}, world.now())
            return writer.state
    return state


def _tell(world: World, paths: AgentPaths, event: str, data: dict[str, Any]) -> None:
    """Add a record to another agent's log; what that one has lost is said first, as ever."""
    try:
        with write_agent(paths, disk=world.disk) as writer:
            writer.append(event, data, world.now())
    except Invalid as error:
        if error.kind not in ("log-shorter", "creation-lost"):
            raise
        with write_agent(paths, disk=world.disk, whole=True) as writer:
            for loss in loss_steps(writer.reading):
                writer.append(loss.event, loss.data or {}, world.now())
            writer.append(event, data, world.now())


def loss_steps(reading: Reading) -> list[Step]:
    """Put into the log what only other files still know: that it was longer, how it began."""
    steps = []
    if reading.rebuilt is not None:
        steps.append(Step("rebuilt the first record", "restore", _creation(reading.rebuilt)))
    lost = [finding for finding in reading.findings if finding.id == "log-shorter"]
    steps += [Step("recorded the loss", "restore", {"notice": one.message}) for one in lost]
    return steps


def _creation(record: Record) -> dict[str, Any]:
    notice = "the first record cannot be read; this one was made of descriptor.json"
    return {"notice": notice, "created": {"created_at": record.ts, "data": record.data}}
