"""Asking running turns to end, from outside (decision D15; docs/behaviour.md, "Interrupting")."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import processes
from agentsdir.adapters.contract import Process
from agentsdir.engine.hearing import NUDGE
from agentsdir.engine.inbox import Message, put
from agentsdir.engine.routing.lineage import descendants
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.directory.turn_notes import read_note
from agentsdir.formats.errors import AgentsdirError, Busy, NoSuchAgent, SessionStateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState

_WAIT = 0.02


class Asked(NamedTuple):
    """A running turn that was, or is to be, asked to end."""

    paths: AgentPaths
    turn_id: str

    @property
    def runs(self) -> bool:
        """Whether it has no end in the log; that of an agent which was removed has ended."""
        try:
            turn = read_agent(self.paths).state.open_turn
        except NoSuchAgent:
            return False
        return turn is not None and turn["turnId"] == self.turn_id and not turn["ended"]

    def as_json(self) -> dict[str, Any]:
        """Return what a command's JSON says of the turn."""
        return {"agentId": self.paths.id, "turnId": self.turn_id, "ended": not self.runs}


class Interrupted(NamedTuple):
    """What `interrupt` did: the turns it asked to end, and the message it left, if any.

    `refused` are agents below that could not be asked, each with the reason.
    """

    asked: list[Asked]
    message_id: str | None
    refused: list[tuple[AgentPaths, AgentsdirError]]


def interrupt(
    world: World,
    paths: AgentPaths,
    reason: str = "",
    content: list[dict[str, Any]] | None = None,
    sender: str = "cli",
) -> Interrupted:
    """Ask the running turns of an agent, and of all below it, to end; waits for none of them.

    Every request is in its log before anybody is signalled.

    Args:
        reason: why, for the record.
        content: a message for the agent, which stays queued for its next turn.
        sender: who leaves it: an agent, or `cli`.

    Raises `SessionStateError` for a closed agent, and (kind ``not-running``) where no turn runs and
    no message is left: then nothing is recorded; and what `write_agent` and `check_trust` raise.
    """
    world.check_trust()
    message_id: str | None = None
    with write_agent(paths, disk=world.disk) as writer:
        state = writer.state
        if state.session.state is SessionState.TERMINATED:
            raise SessionStateError(f"agent {paths.id} is closed", kind="closed")
        if content:
            # First, so that whoever runs the agent's turns finds it there.
            message_id = put(writer, world, Message(content, sender))
        own = request_end(world, writer, "interrupt", reason)
    asked, refused = interrupt_descendants(world, paths, reason)
    asked = [*([own] if own else []), *asked]
    if not asked and not content:
        raise _idle(paths, state)
    nudge(asked)
    return Interrupted(asked, message_id, refused)


def interrupt_descendants(
    world: World, paths: AgentPaths, message: str = ""
) -> tuple[list[Asked], list[tuple[AgentPaths, AgentsdirError]]]:
    """Ask the running turns of all agents below one to end, unless they were asked before.

    Returns those that were asked, and the agents that could not be.
    """
    asked: list[Asked] = []
    refused: list[tuple[AgentPaths, AgentsdirError]] = []
    for listed in descendants(world.layout, paths.id):
        if not locks.is_held(listed.paths.turn):
            continue
        try:
            with write_agent(listed.paths, disk=world.disk) as writer:
                turn = writer.state.open_turn
                if turn is not None and not turn["aborted"]:
                    one = request_end(world, writer, "parent", message)
                    asked += [one] if one else []
        except AgentsdirError as error:
            refused.append((listed.paths, error))
    return asked, refused


def pass_on(world: World, paths: AgentPaths) -> None:
    """Ask what runs below an agent to end, because its own turn was interrupted."""
    nudge(interrupt_descendants(world, paths)[0])


def request_end(world: World, writer: AgentWriter, reason: str, message: str = "") -> Asked | None:
    """Append a request to end the turn that runs; None where none does.

    Args:
        reason: interrupt, parent or close.
        message: why, in somebody's words.
    """
    if (running := running_turn(writer)) is not None:
        request = {"turn_id": running.turn_id, "reason": reason}
        if message:
            request["message"] = message
        writer.append("abort.requested", request, world.now())
    return running


def running_turn(writer: AgentWriter) -> Asked | None:
    """Return the turn of an agent that has no end, if somebody is at work on it."""
    turn = writer.state.open_turn
    if turn is None or turn["ended"] or not locks.is_held(writer.paths.turn):
        return None
    return Asked(writer.paths, turn["turnId"])


def _idle(paths: AgentPaths, state: AgentState) -> AgentsdirError:
    hint = None
    if state.open_turn is not None:
        hint = f"its process died; `agentsdir restore {paths.id}` ends the turn"
    return SessionStateError(f"agent {paths.id} runs no turn", hint=hint, kind="not-running")


def nudge(asked: Sequence[Asked]) -> None:
    """Have the holders look into their logs at once; those whose process is not known will soon."""
    for paths, turn_id in asked:
        note = read_note(paths)
        if note is None or note.turn_id != turn_id or not locks.is_held(paths.turn):
            continue
        if processes.is_alive(holder := Process(*note.holder)):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(holder.pid, NUDGE)


def wait_for_ends(world: World, asked: Sequence[Asked]) -> list[Asked]:
    """Wait until each turn has ended; return those whose process died before that.

    Raises `Busy` for one that does not end for long.
    """
    for one in asked:
        what = f"agent {one.paths.id}"
        waiting = locks.Wait(one.paths.turn, what, locks.FOREVER, brief=True)
        while one.runs and locks.is_held(one.paths.turn):
            if not waiting.pause(_WAIT, world.sleep):
                raise Busy(f"{waiting.why}; it was asked to end", hint="--no-wait does not wait")
        waiting.end()
    return [one for one in asked if one.runs]


def clear_abort(world: World, paths: AgentPaths) -> str | None:
    """Take back a request to end the turn that runs, if it was not heeded; return the turn's id.

    None where there is nothing to take back, and then nothing is recorded. Raises what
    `write_agent` raises.
    """
    with write_agent(paths, disk=world.disk) as writer:
        turn = writer.state.open_turn
        closed = writer.state.session.state is SessionState.TERMINATED
        if turn is None or turn["ended"] or not turn["aborted"] or closed:
            return None
        writer.append("abort.cleared", {"turn_id": turn["turnId"]}, world.now())
        return str(turn["turnId"])
