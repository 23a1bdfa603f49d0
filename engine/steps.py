"""Records that are planned first and added later, one at a time (decision D3)."""

from __future__ import annotations

from contextlib import suppress

from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.errors import Invalid, SessionStateError
from agentsdir.formats.tuples import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.agent import AgentWriter, Reading
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState


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
    """Add one record, each under the lock of its own agent alone; return the agent's new state.

    One that somebody else has added since it was planned is left out, and so is one that the agent,
    which was closed since then, takes no more.
    """
    if step.to is not None:
        _tell(world, step.to, step)
    elif step.event:
        with write_agent(paths, disk=world.disk, known=state) as writer:
            _add(world, writer, step)
            return writer.state
    return state


def _tell(world: World, paths: AgentPaths, step: Step) -> None:
    """Add a record to another agent's log; what that one has lost is said first, as ever."""
    try:
        with write_agent(paths, disk=world.disk) as writer:
            _add(world, writer, step)
    except Invalid as error:
        if error.kind not in ("log-shorter", "creation-lost"):
            # Its own trouble, and nobody else's; `restore` catches up once it can be written to.
            world.tell(f"agent {paths.id} was not told: {error.message}")
            return
        with write_agent(paths, disk=world.disk, whole=True) as writer:
            for loss in loss_steps(writer.reading):
                writer.append(loss.event, loss.data or {}, world.now())
            _add(world, writer, step)


def _add(world: World, writer: AgentWriter, step: Step) -> None:
    data = step.data or {}
    if not _is_done(writer.state, step.event, data.get("message_id")):
        with suppress(SessionStateError):
            writer.append(step.event, data, world.now())


def _is_done(state: AgentState, event: str, message_id: str | None) -> bool:
    """Tell whether a message that is to be settled is, or one that is to be left waits."""
    waiting = [message["messageId"] for message in state.pending]
    if event == "message.delivered":
        turn = state.open_turn
        return message_id not in [*waiting, *(turn["messageIds"] if turn else ())]
    return event == "message.enqueued" and message_id in waiting


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
