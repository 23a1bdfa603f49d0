"""Ending an agent or its history: close, reset, archive, remove."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.cancel import request_cancel, running_turn, wait_for_turns, wake_holders
from agentsdir.engine.create import check_native, check_unique, check_unused
from agentsdir.engine.lookup import ancestors, descendants
from agentsdir.engine.notices import Step, abort_pending_steps, apply_step, subagent_blocks
from agentsdir.engine.providers import change_native
from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats import ids
from agentsdir.formats.errors import (
    AgentsdirError,
    Busy,
    Invalid,
    NoSuchAgent,
    NotRecorded,
    SessionStateError,
)
from agentsdir.formats.store import files, locks
from agentsdir.formats.store.agent import move_agent, read_agent, withdraw_agent, write_agent
from agentsdir.formats.store.slots import Slots
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.engine.cancel import RunningTurn
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.state import AgentState


# Beginning a session's history anew (decision D22; docs/behaviour.md, "Sessions and turns").


def reset(
    services: Services, paths: AgentPaths, message: str = "", *, wait: float = 0
) -> AgentState:
    """Let the next turn begin without any that went before; nothing is deleted.

    Args:
        message: what stands at the marker in the history; empty for nothing.
        wait: seconds to wait for a turn to end; negative waits for ever.

    Raises `SessionStateError` for a terminated session, and `Busy`.
    """
    with hold_turn(paths, wait=wait), services.disk.settled():
        state = close_crashed_turn(services, paths)
        if state.session.state is SessionState.TERMINATED:
            raise SessionStateError(f"agent {paths.id}: a terminated session cannot be reset")
        with write_agent(paths, disk=services.disk, known=state) as writer:
            # In this order: whoever dies in between leaves no marker before a native session that
            # still knows what stood before it.
            change_native(writer, ids.dashed(services.ids.session()), "reset", services.now())
            marker = {"message": message} if message else {}
            writer.append("history.reset", marker, services.now())
            return writer.state


# Removing an agent with all it has (SPEC.md, "Locks and durability").


@contextmanager
def hold_agent(services: Services, paths: AgentPaths) -> Iterator[None]:
    """Hold what keeps an agent where it is: no agent is made meanwhile, and this one has no turn.

    Raises `Busy` when a turn runs, `NoSuchAgent` when the agent is gone.
    """
    create = services.layout.create_lock
    with (
        locks.hold(create, brief=True, what="the agents directory"),
        hold_turn(paths, hint="its turn has to end first"),
    ):
        yield


def remove_agent(
    services: Services, paths: AgentPaths, *, only_if: Callable[[AgentState], bool] | None = None
) -> bool:
    """Remove an agent's folder with everything in it; tell whether it was.

    Whoever waits for the agent is told that it is gone.

    Args:
        only_if: says of the agent, which nobody can write to then, whether it is to go. Without it
            nothing in the folder is read.

    Raises what `hold_agent` raises, `NotRecorded` when nothing was removed, or (kind
    ``half-removed``) when the agent is gone but not all of its files: then `restore` removes the
    rest, as it does after a crash.
    """
    with hold_agent(services, paths):
        with locks.hold_undisturbed(paths.lock, what=f"the log of agent {paths.id}") as held:
            held.check()
            if only_if is not None and not only_if(read_agent(paths).state):
                return False
            Slots(services.layout).leave(paths.id)
            rest = withdraw_agent(services.layout, paths, services.disk)
        try:
            # Under the create lock, so that no `restore` sweeps it at the same time.
            files.remove(rest)
        except NotRecorded as error:
            raise NotRecorded(
                f"agent {paths.id} is gone, but not all of its files: {error.message}",
                hint="`agentsdir restore` removes what is left",
                kind="half-removed",
            ) from error
    return True


# Putting agents away, and bringing them back (SPEC.md, "Layout").


class Moved(NamedTuple):
    """An agent that was archived, or brought back, which `kind` says.

    `error` says why it could not be read, when it was moved as it is; then `state` is None.
    """

    kind: str
    agent_id: str
    state: str | None
    error: Invalid | None

    def as_json(self) -> dict[str, Any]:
        """Return one line of `archive --json`."""
        return {"type": self.kind, "agentId": self.agent_id, "state": self.state}


def archive_agent(services: Services, paths: AgentPaths) -> Moved:
    """Suspend an agent's session if it is active, and move its folder to the archive.

    A damaged agent is moved as it is. Raises what `hold_agent` and `move_agent` raise, and
    `AgentsdirError` (kind ``already-exists``) when an agent of this id was archived before.
    """
    folder = services.layout.folder(archived=True)
    with hold_agent(services, paths):
        check_unused(services.layout, paths.id, archived=True)
        error = None
        state: AgentState | None = None
        try:
            state = _suspend_for_archive(services, paths)
        except Invalid as damage:
            error = damage
        Slots(services.layout).leave(paths.id)
        _move(services, paths, folder)
    return _moved("archived", paths, state, error)


def _suspend_for_archive(services: Services, paths: AgentPaths) -> AgentState:
    # All of this is durable before the folder moves: afterwards nobody finds the files.
    with services.disk.settled():
        state = close_crashed_turn(services, paths)
        if state.session.state is SessionState.ACTIVE:
            with write_agent(paths, disk=services.disk, known=state) as writer:
                change = {"from": "active", "to": "suspended", "reason": "archive"}
                writer.append("session.state", change, services.now())
                state = writer.state
    return state


def unarchive_agent(services: Services, paths: AgentPaths) -> Moved:
    """Bring an archived agent back among the others, with every byte it had.

    Raises what `hold_agent` and `move_agent` raise, and `AgentsdirError` (kind
    ``already-exists``) when another agent has its id, its routing key, its name or its native
    session by now.
    """
    layout = services.layout
    with hold_agent(services, paths):
        check_unused(layout, paths.id)
        error = None
        state: AgentState | None = None
        try:
            state = read_agent(paths).state
        except Invalid as damage:
            error = damage
        if state is not None and state.session.state is not SessionState.TERMINATED:
            check_unique(layout, state.descriptor, state.name or "", paths.id)
            check_native(layout, state.native["id"])
        _move(services, paths, layout.folder(archived=False))
    return _moved("unarchived", paths, state, error)


def _moved(kind: str, paths: AgentPaths, state: AgentState | None, error: Invalid | None) -> Moved:
    return Moved(kind, paths.id, state.session.state.value if state else None, error)


def _move(services: Services, paths: AgentPaths, folder: Path) -> None:
    files.make_folder(folder, services.disk)
    with locks.hold_undisturbed(paths.lock, what=f"the log of agent {paths.id}") as held:
        held.check()
        move_agent(paths, folder / paths.id, services.disk)


# Ephemeral agents: once their work is done and told, they are removed (decision D19).


def remove_if_finished(services: Services, paths: AgentPaths) -> bool:
    """Remove an agent if it is ephemeral and has nothing left to do; tell whether it is gone.

    One that somebody holds is left to them, and to `restore`. Raises what `remove_agent` raises.
    """
    try:
        # Before any lock is asked for: nearly every agent stays.
        return is_finished(read_agent(paths).state) and remove_agent(
            services, paths, only_if=is_finished
        )
    except (Busy, Invalid, NoSuchAgent):
        return False


def is_finished(state: AgentState) -> bool:
    """Tell whether an agent is ephemeral and done: its last message is settled, none waits."""
    return state.open_turn is None and is_finished_but_for_turn(state)


def is_finished_but_for_turn(state: AgentState) -> bool:
    """Tell the same of an agent whose open turn is about to be closed."""
    has_worked = state.counters["turns"] > 0 or state.session.state is SessionState.TERMINATED
    return state.ephemeral and has_worked and not (state.pending or state.children or state.unsent)


# Closing agents for good (decision D15; docs/behaviour.md, "Closing").
#
# The agent first, so that nobody can be spawned below it any more; then, under the create lock,
# every agent below it, from above to below. None needs its `.turn`: a running turn is asked to
# end, and ends in its own time, in a session that stays closed.

_PARENT_CLOSED = "its parent was closed"


class Closed(NamedTuple):
    """One agent that is closed now.

    `turn` is its turn that runs still, and was asked to end; `messages` were given up without one.
    `before` is whether somebody had closed it already.
    """

    paths: AgentPaths
    before: bool
    turn: RunningTurn | None
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


class CloseResult(NamedTuple):
    """What `close` did: the agents that are closed now, from above to below.

    `refused` are agents below that could not be closed, each with the reason.
    """

    closed: list[Closed]
    refused: list[tuple[AgentPaths, AgentsdirError]]


def close(services: Services, paths: AgentPaths) -> CloseResult:
    """Close an agent and all below it; waits for none of their turns.

    Done half, it can be done again. Raises what `write_agent` raises for the agent itself, and
    `Busy` when somebody holds the create lock for long.
    """
    closed: list[Closed] = []
    refused: list[tuple[AgentPaths, AgentsdirError]] = []
    try:
        with services.disk.settled():
            closed.append(_close_one(services, paths, "close"))
            create = services.layout.create_lock
            with locks.hold(create, brief=True, what="the agents directory"):
                for listed in descendants(services.layout, paths.id):
                    try:
                        closed.append(_close_one(services, listed.paths, "parent"))
                    except AgentsdirError as error:
                        refused.append((listed.paths, error))
    finally:
        wake_holders([one.turn for one in closed if one.turn is not None])
    for one in reversed(closed):
        remove_if_finished(services, one.paths)
    return CloseResult(closed, refused)


def end_closed_turns(services: Services, turns: list[RunningTurn]) -> None:
    """Wait until no turn of closed agents runs any more; one whose process died is ended here."""
    for one in wait_for_turns(services, turns):
        with suppress(Busy), hold_turn(one.paths), services.disk.settled():
            close_crashed_turn(services, one.paths)


def _close_one(services: Services, paths: AgentPaths, reason: str) -> Closed:
    with ExitStack() as stack:
        if not locks.is_held(paths.turn):
            # Nobody is at work: what a dead process left open is ended first.
            with suppress(Busy):
                stack.enter_context(hold_turn(paths))
                close_crashed_turn(services, paths)
        with write_agent(paths, disk=services.disk) as writer:
            before = writer.state.session.state is SessionState.TERMINATED
            turn = running_turn(writer) if before else request_cancel(services, writer, reason)
            for step in [] if before else terminate_steps(paths, writer.state):
                writer.append(step.event, step.data or {}, services.now())
            state = writer.state
        Slots(services.layout).leave(paths.id)
        messages = [message["messageId"] for message in state.pending]
        for step in abort_pending_steps(services.layout, state):
            state = apply_step(services, paths, state, step)
    return Closed(paths, before, turn, messages)


def terminate_steps(paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what closes an agent that is not closed, but for its messages."""
    change = {"from": state.session.state.value, "to": "terminated", "reason": "close"}
    return [*_end_children(paths, state), Step("closed", "session.state", change)]


def unfinished_steps(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what a `close` left to do that died before it came down to an agent."""
    if state.session.state is SessionState.TERMINATED or not _has_closed_ancestor(layout, state):
        return []
    return [*terminate_steps(paths, _after_crash(state)), *abort_pending_steps(layout, state)]


def _after_crash(state: AgentState) -> AgentState:
    """Return a state without its open turn, which `crash_steps` end, and what it asked for."""
    asked = {one.get("child") for one in state.open_turn["deferred"]} if state.open_turn else set()
    children = {child: known for child, known in state.children.items() if child not in asked}
    return replace(state, open_turn=None, children=children)


def _has_closed_ancestor(layout: Layout, state: AgentState) -> bool:
    try:
        above = [read_agent(one).state.session.state for one in ancestors(layout, state)]
    except AgentsdirError:
        return False  # who is not there, or goes round, has closed nobody
    return SessionState.TERMINATED in above


def _end_children(paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return what ends spawned agents in their parent's log: nothing is said of them later."""
    turn = state.open_turn
    asked = {one.get("child") for one in turn["deferred"]} if turn else set()
    blocks = subagent_blocks(paths, state.children)
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
