"""Closing agents for good (decision D15; docs/behaviour.md, "Closing").

The agent first, so that nobody can be spawned below it any more; then, under the create lock, every
agent below it, from above to below. None needs its `.turn`: a running turn is asked to end, and
ends in its own time, in a session that stays closed.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.aftermath import give_up_steps
from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.interrupts import nudge, request_end, running_turn, wait_for_ends
from agentsdir.engine.routing.lineage import ancestors, descendants
from agentsdir.engine.spawning.ephemeral import remove_spent
from agentsdir.engine.spawning.telling import shown
from agentsdir.engine.steps import Step, take_step
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.directory.slots import Slots
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError, Busy

if TYPE_CHECKING:
    from agentsdir.engine.interrupts import Asked
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState

_PARENT_CLOSED = "its parent was closed"


class Closed(NamedTuple):
    """One agent that is closed now.

    `turn` is its turn that runs still, and was asked to end; `messages` were given up without one.
    `before` is whether somebody had closed it already.
    """

    paths: AgentPaths
    before: bool
    turn: Asked | None
    messages: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return one line of `close --json`."""
        turn = self.turn
        return {
            "type": "closed",
            "agentId": self.paths.id,
            "before": self.before,
            "turn": None if turn is None else {"turnId": turn.turn_id, "ended": not turn.runs},
            "messages": self.messages,
        }


class Closing(NamedTuple):
    """What `close` did: the agents that are closed now, from above to below.

    `refused` are agents below that could not be closed, each with the reason.
    """

    closed: list[Closed]
    refused: list[tuple[AgentPaths, AgentsdirError]]


def close(world: World, paths: AgentPaths) -> Closing:
    """Close an agent and all below it; waits for none of their turns.

    Done half, it can be done again. Raises what `write_agent` raises for the agent itself, and
    `Busy` when somebody holds the create lock for long.
    """
    closed: list[Closed] = []
    refused: list[tuple[AgentPaths, AgentsdirError]] = []
    try:
        with world.disk.settled():
            closed.append(_close_one(world, paths, "close"))
            create = world.layout.create_lock
            with locks.hold(create, brief=True, what="the agents directory"):
                for listed in descendants(world.layout, paths.id):
                    try:
                        closed.append(_close_one(world, listed.paths, "parent"))
                    except AgentsdirError as error:
                        refused.append((listed.paths, error))
    finally:
        nudge([one.turn for one in closed if one.turn is not None])
    for one in reversed(closed):
        remove_spent(world, one.paths)
    return Closing(closed, refused)


def wait_until_over(world: World, turns: list[Asked]) -> None:
    """Wait until no turn of closed agents runs any more; one whose process died is ended here."""
    for one in wait_for_ends(world, turns):
        with suppress(Busy), hold_turn(one.paths), world.disk.settled():
            close_crashed_turn(world, one.paths)


def _close_one(world: World, paths: AgentPaths, reason: str) -> Closed:
    with ExitStack() as stack:
        if not locks.is_held(paths.turn):
            # Nobody is at work: what a dead process left open is ended first.
            with suppress(Busy):
                stack.enter_context(hold_turn(paths))
                close_crashed_turn(world, paths)
        with write_agent(paths, disk=world.disk) as writer:
            before = writer.state.session.state is SessionState.TERMINATED
            turn = running_turn(writer) if before else request_end(world, writer, reason)
            for step in [] if before else terminate_steps(paths, writer.state):
                writer.append(step.event, step.data or {}, world.now())
            state = writer.state
        Slots(world.layout).leave(paths.id)
        messages = [message["messageId"] for message in state.pending]
        for step in give_up_steps(world.layout, state):
            state = take_step(world, paths, state, step)
    return Closed(paths, before, turn, messages)


def terminate_steps(paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what closes an agent that is not closed, but for its messages."""
    change = {"from": state.session.state.value, "to": "terminated", "reason": "close"}
    return [*_leave_children(paths, state), Step("closed", "session.state", change)]


def unfinished_steps(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what a `close` left to do that died before it came down to an agent."""
    if state.session.state is SessionState.TERMINATED or not _stands_below_closed(layout, state):
        return []
    return [*terminate_steps(paths, _after_crash(state)), *give_up_steps(layout, state)]


def _after_crash(state: AgentState) -> AgentState:
    """Return a state without its open turn, which `crash_steps` end, and what it asked for."""
    asked = {one.get("child") for one in state.open_turn["deferred"]} if state.open_turn else set()
    children = {child: known for child, known in state.children.items() if child not in asked}
    return state.replaced(open_turn=None, children=children)


def _stands_below_closed(layout: Layout, state: AgentState) -> bool:
    try:
        above = [read_agent(one).state.session.state for one in ancestors(layout, state)]
    except AgentsdirError:
        return False  # who is not there, or goes round, has closed nobody
    return SessionState.TERMINATED in above


def _leave_children(paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what ends spawned agents in their parent's log: nothing is said of them later."""
    turn = state.open_turn
    asked = {one.get("child") for one in turn["deferred"]} if turn else set()
    blocks = shown(paths, state.children)
    steps = []
    for child, known in state.children.items():
        block = blocks.get(child)
        if block is not None:
            within = turn["turnId"] if turn and child in asked else None
            ended = {**block, "status": "error", "output": f"Dropped: {_PARENT_CLOSED}."}
            block_data = {"turn_id": within, "block": ended}
            steps.append(Step(f"marked subagent {child}: error", "block", block_data))
        said = {"child": child, "name": known["name"]}
        if known["status"] == "pending":
            dropped = {**said, "reason": _PARENT_CLOSED}
            steps.append(Step(f"dropped subagent {child}", "spawn.dropped", dropped))
        else:
            failed = {**said, "status": "error", "detail": _PARENT_CLOSED}
            steps.append(Step(f"left subagent {child}", "agent.spawned", failed))
    return steps
