"""Ending an agent or its history: close, reset, archive, remove."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.cancel import request_cancel, running_turn, wait_for_turns, wake_holders
from agentsdir.engine.create import check_native, check_unique, check_unused
from agentsdir.engine.hooks import session_closed
from agentsdir.engine.lookup import ancestors, descendants, hold_create_lock
from agentsdir.engine.notices import Step, abort_pending_steps, apply_steps, subagent_blocks
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
    from agentsdir.formats.store.index import IndexWriter
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.state import AgentState

_PARENT_CLOSED = "its parent was closed"


def reset(
    services: Services, paths: AgentPaths, message: str = "", *, wait: float = 0
) -> AgentState:
    """Start a new native session, so that the next turn has no earlier context; nothing is deleted.

    See decision D22.

    Args:
        message: the text of the marker in the history; empty for none.
        wait: seconds to wait for a turn to end; negative waits for ever.

    Raises `SessionStateError` for a terminated session, and `Busy`.
    """
    with hold_turn(paths, wait=wait), services.disk.synced_at_end():
        state = close_crashed_turn(services, paths)
        if state.session.state is SessionState.TERMINATED:
            raise SessionStateError(f"agent {paths.id}: a terminated session cannot be reset")
        with write_agent(paths, disk=services.disk, known=state) as writer:
            # In this order: a crash in between must not leave the marker with the old session.
            change_native(writer, ids.dashed(services.ids.session()), "reset", services.now())
            marker = {"message": message} if message else {}
            writer.append("history.reset", marker, services.now())
            return writer.state


@contextmanager
def hold_agent(services: Services, paths: AgentPaths) -> Iterator[IndexWriter]:
    """Hold the create lock and the agent's `.turn`, so that its folder can be moved or removed.

    Raises `Busy` when a turn runs, `NoSuchAgent` when the agent is gone.
    """
    with (
        hold_create_lock(services.layout) as index,
        hold_turn(paths, hint="its turn has to end first"),
    ):
        yield index


def remove_agent(
    services: Services, paths: AgentPaths, *, only_if: Callable[[AgentState], bool] | None = None
) -> bool:
    """Remove an agent's folder with everything in it; return whether it was removed.

    Processes that wait for one of its locks then raise `NoSuchAgent`.

    Args:
        only_if: called under the agent's locks; returns whether to remove the agent. Without it
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


class Moved(NamedTuple):
    """An agent that was archived or unarchived; `kind` says which.

    `error` is set, and `state` is None, for an agent that was moved although it cannot be read.
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
    # All of it is durable before the folder moves: afterwards the paths are wrong.
    with services.disk.synced_at_end():
        state = close_crashed_turn(services, paths)
        if state.session.state is SessionState.ACTIVE:
            with write_agent(paths, disk=services.disk, known=state) as writer:
                change = {"from": "active", "to": "suspended", "reason": "archive"}
                writer.append("session.state", change, services.now())
                state = writer.state
    return state


def unarchive_agent(services: Services, paths: AgentPaths) -> Moved:
    """Move an archived agent back, byte for byte.

    Raises what `hold_agent` and `move_agent` raise, and `AgentsdirError` (kind
    ``already-exists``) when another agent has its id, its routing key, its name or its native
    session by now.
    """
    layout = services.layout
    with hold_agent(services, paths) as index:
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
        index.add(paths.id)
    return _moved("unarchived", paths, state, error)


def _moved(kind: str, paths: AgentPaths, state: AgentState | None, error: Invalid | None) -> Moved:
    return Moved(kind, paths.id, state.session.state.value if state else None, error)


def _move(services: Services, paths: AgentPaths, folder: Path) -> None:
    files.make_folder(folder, services.disk)
    with locks.hold_undisturbed(paths.lock, what=f"the log of agent {paths.id}") as held:
        held.check()
        move_agent(paths, folder / paths.id, services.disk)


def remove_if_finished(services: Services, paths: AgentPaths) -> bool:
    """Remove an agent if it is ephemeral and finished (D19); return whether it was removed.

    An agent whose lock is held is left to its holder, and to `restore`. Raises what `remove_agent`
    raises.
    """
    try:
        # Before any lock is asked for: nearly every agent stays.
        state = read_agent(paths).state
        if not is_finished(state):
            return False
        removed = remove_agent(services, paths, only_if=is_finished)
    except (Busy, Invalid, NoSuchAgent):
        return False
    if removed and state.session.state is not SessionState.TERMINATED:
        session_closed(services, paths, "finished", state)
    return removed


def is_finished(state: AgentState) -> bool:
    """Return whether an agent is ephemeral and has nothing left to do."""
    return state.open_turn is None and is_finished_but_for_turn(state)


def is_finished_but_for_turn(state: AgentState) -> bool:
    """Return whether an agent is finished once its open turn is closed."""
    has_worked = state.counters["turns"] > 0 or state.session.state is SessionState.TERMINATED
    return state.ephemeral and has_worked and not (state.pending or state.children or state.unsent)


class Closed(NamedTuple):
    """One agent that is closed now.

    `turn` is a turn that still runs and was cancelled. `messages` are the ids of messages that were
    aborted without a turn. `before` is whether it was closed already.
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
    """The agents that `close` closed, parents first.

    `refused` are descendants that could not be closed, each with the error.
    """

    closed: list[Closed]
    refused: list[tuple[AgentPaths, AgentsdirError]]


def close(services: Services, paths: AgentPaths) -> CloseResult:
    """Close an agent and its descendants for good (D15); their turns are cancelled, not awaited.

    The agent is closed first, so that it can spawn no more; then, under the create lock, each
    descendant, parents first. Running turns end later, in a session that is closed. After a crash
    it can be repeated. Raises what `write_agent` raises for the agent itself, and `Busy` if the
    create lock is held for long.
    """
    closed: list[Closed] = []
    refused: list[tuple[AgentPaths, AgentsdirError]] = []
    try:
        with services.disk.synced_at_end():
            closed.append(_close_one(services, paths, "close"))
            with hold_create_lock(services.layout):
                for listed in descendants(services.layout, paths.id):
                    try:
                        closed.append(_close_one(services, listed.paths, "parent"))
                    except AgentsdirError as error:
                        refused.append((listed.paths, error))
    finally:
        wake_holders([one.turn for one in closed if one.turn is not None])
    for number, one in enumerate(closed):
        if not one.before:
            session_closed(services, one.paths, "parent" if number else "close")
    for one in reversed(closed):
        remove_if_finished(services, one.paths)
    return CloseResult(closed, refused)


def end_closed_turns(services: Services, turns: list[RunningTurn]) -> None:
    """Wait until the turns of closed agents have ended; end those whose process died."""
    for one in wait_for_turns(services, turns):
        with suppress(Busy), hold_turn(one.paths), services.disk.synced_at_end():
            close_crashed_turn(services, one.paths)


def _close_one(services: Services, paths: AgentPaths, reason: str) -> Closed:
    with ExitStack() as stack:
        if not locks.is_held(paths.turn):
            # Without a holder: a turn that a dead process left open is ended first.
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
        apply_steps(services, paths, state, abort_pending_steps(services.layout, state))
    return Closed(paths, before, turn, messages)


def terminate_steps(paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return the steps that close an agent, without those for its messages."""
    change = {"from": state.session.state.value, "to": "terminated", "reason": "close"}
    return [*_end_children(paths, state), Step("closed", "session.state", change)]


def unfinished_steps(layout: Layout, paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return the steps for an agent that a crashed `close` of an ancestor did not reach."""
    if state.session.state is SessionState.TERMINATED or not _has_closed_ancestor(layout, state):
        return []
    return [*terminate_steps(paths, _after_crash(state)), *abort_pending_steps(layout, state)]


def _after_crash(state: AgentState) -> AgentState:
    """Return a state without its open turn, which `crash_steps` end, and the turn's requests."""
    asked = {one.get("child") for one in state.open_turn["deferred"]} if state.open_turn else set()
    children = {child: known for child, known in state.children.items() if child not in asked}
    return replace(state, open_turn=None, children=children)


def _has_closed_ancestor(layout: Layout, state: AgentState) -> bool:
    try:
        above = [read_agent(one).state.session.state for one in ancestors(layout, state)]
    except AgentsdirError:
        return False  # an ancestor is missing, or the parents form a cycle
    return SessionState.TERMINATED in above


def _end_children(paths: AgentPaths, state: AgentState) -> list[Step]:
    """Return the steps that end the children in the log of a parent that is closed."""
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
