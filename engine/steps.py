"""Records that are planned first and added later, one at a time (decision D3)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.errors import Busy, Invalid, NoSuchAgent, SessionStateError

if TYPE_CHECKING:
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.agent import AgentWriter, Reading
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.records import Record
    from agentsdir.formats.directory.states import AgentState


class Step(NamedTuple):
    """One record to add, and what a report says of it.

    `to` is the agent it is for when that is another one; a step without an event only says
    something. `is_failure` is whether it says that somebody was not told, which a person sees at
    once. `settles` is the id of a `message.unsent` that is settled when the step is taken.
    """

    says: str
    event: str = ""
    data: dict[str, Any] | None = None
    to: AgentPaths | None = None
    is_failure: bool = False
    settles: str = ""


def unsent_step(agent_id: str, message: dict[str, Any], whom: str) -> Step:
    """Return what remembers that an agent could not be told something.

    Args:
        message: the data of the `message.enqueued` that its log should have.
        whom: what the agent is to the one who tells.
    """
    says = f"{whom} {agent_id} cannot be told now; `agentsdir restore {agent_id}` does it later"
    return Step(says, "message.unsent", {"to": agent_id, "message": message}, is_failure=True)


def take_step(world: World, paths: AgentPaths, state: AgentState, step: Step) -> AgentState:
    """Add one record, each under the lock of its own agent alone; return the agent's new state.

    One that somebody else has added since it was planned is left out, and so is one that the agent,
    which was closed since then, takes no more. What cannot be added to another agent's log is
    remembered in that of the agent which tells it.
    """
    if step.is_failure:
        world.tell(step.says)
    if step.to is not None:
        if not _tell(world, step.to, step):
            return _remember(world, paths, state, step)
    elif step.event:
        state = _append(world, paths, state, step)
    if step.settles:
        state = _append(world, paths, state, settled_step(step.settles, "delivered"))
    return state


def settled_step(message_id: str, outcome: str, to: AgentPaths | None = None) -> Step:
    """Return what says that a `message.unsent` is no more."""
    data = {"message_id": message_id, "outcome": outcome}
    return Step(f"settled what could not be told: {outcome}", "message.resent", data, to)


def _append(world: World, paths: AgentPaths, state: AgentState, step: Step) -> AgentState:
    with write_agent(paths, disk=world.disk, known=state) as writer:
        _add(world, writer, step)
        return writer.state


def _remember(world: World, paths: AgentPaths, state: AgentState, step: Step) -> AgentState:
    """Keep a message that another agent's log did not take in the log of its sender."""
    data = step.data or {}
    if step.event != "message.enqueued" or step.to is None or step.settles:
        return state  # the rest follows from the logs, and `restore` finds it there
    unsent = unsent_step(step.to.id, data, "agent")
    own = data["sender"] == state.agent_id
    return take_step(
        world,
        paths,
        state,
        unsent._replace(to=None if own else world.layout.agent(data["sender"])),
    )


def _tell(world: World, paths: AgentPaths, step: Step) -> bool:
    """Add a record to another agent's log; what that one has lost is said first, as ever.

    Returns whether that log could be written to, which is its own trouble and nobody else's.
    """
    try:
        with write_agent(paths, disk=world.disk) as writer:
            _add(world, writer, step)
    except Invalid as error:
        if error.kind not in ("log-shorter", "creation-lost"):
            world.tell(f"agent {paths.id} was not told: {error.message}")
            return False
        with write_agent(paths, disk=world.disk, whole=True) as writer:
            for loss in loss_steps(writer.reading):
                writer.append(loss.event, loss.data or {}, world.now())
            _add(world, writer, step)
    except (Busy, NoSuchAgent) as error:
        world.tell(f"agent {paths.id} was not told: {error.message}")
        return False
    return True


def _add(world: World, writer: AgentWriter, step: Step) -> None:
    data = step.data or {}
    if not _is_done(writer.state, step.event, data):
        with suppress(SessionStateError):
            writer.append(step.event, data, world.now())


def _is_done(state: AgentState, event: str, data: dict[str, Any]) -> bool:
    """Tell whether a message that is to be settled is, or one that is to be left waits."""
    if event == "message.unsent":
        return data["message"]["message_id"] in state.unsent
    message_id = data.get("message_id")
    if event == "message.resent":
        return message_id not in state.unsent
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
