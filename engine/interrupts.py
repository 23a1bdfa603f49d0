"""Ending a running turn from outside, and hearing of it (decision D15)."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from agentsdir.adapters import processes
from agentsdir.adapters.contract import Process
from agentsdir.engine.world import World
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.directory.fold import AgentState
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.directory.log import Position, open_log, read_log
from agentsdir.formats.directory.turn_notes import read_note
from agentsdir.formats.errors import AgentsdirError, SessionStateError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_LOOK_EVERY = 0.5  # seconds between two looks of a holder into its log
_WAIT = 0.02


class Interrupted(NamedTuple):
    """A turn that was asked to end, and whether it has."""

    turn_id: str
    ended: bool

    def as_json(self) -> dict[str, Any]:
        """Return what `interrupt --json` says of the turn."""
        return {"turnId": self.turn_id, "ended": self.ended}


def interrupt(
    world: World, paths: AgentPaths, reason: str = "", *, wait: bool = True
) -> Interrupted:
    """Ask the agent's running turn to end, and wait until it has.

    The request is in the log before anybody is signalled. A holder that `.turn` names, with its
    start time, is signalled; every other one sees the request in its log within a second.

    Args:
        reason: why, for the record.

    Raises `SessionStateError` (kind ``not-running``) for an agent without a running turn, of whom
    nothing is recorded; and what `write_agent` and `check_trust` raise.
    """
    world.check_trust()
    with write_agent(paths, disk=world.disk) as writer:
        turn = writer.state.open_turn
        if turn is None or turn["ended"] or not locks.is_held(paths.turn):
            raise _idle(paths, writer.state)
        turn_id: str = turn["turnId"]
        request = {"turn_id": turn_id, "reason": "interrupt"}
        if reason:
            request["message"] = reason
        writer.append("abort.requested", request, world.now())
    note = read_note(paths)
    if note is not None and note.turn_id == turn_id and locks.is_held(paths.turn):
        _signal(Process(*note.holder))
    while (runs := _runs(paths, turn_id)) and wait and locks.is_held(paths.turn):
        world.sleep(_WAIT)
    return Interrupted(turn_id, ended=not (runs and _runs(paths, turn_id)))


def _idle(paths: AgentPaths, state: AgentState) -> AgentsdirError:
    hint = None
    if state.open_turn is not None:
        hint = f"its process died; `agentsdir restore {paths.id}` ends the turn"
    return SessionStateError(f"agent {paths.id} runs no turn", hint=hint, kind="not-running")


def _signal(holder: Process) -> None:
    if processes.is_alive(holder):
        with suppress(ProcessLookupError, PermissionError):  # then it sees the request by itself
            os.kill(holder.pid, signal.SIGINT)


def _runs(paths: AgentPaths, turn_id: str) -> bool:
    turn = read_agent(paths).state.open_turn
    return turn is not None and turn["turnId"] == turn_id and not turn["ended"]


@contextmanager
def heard(paths: AgentPaths, position: Position, turn_id: str) -> Iterator[None]:
    """While a turn runs, look into its log for a request to end it; raise `KeyboardInterrupt`.

    A timer, and no thread: it reaches a provider that waits for a pipe, and a process that starts
    others had better have one thread only. Elsewhere than in the main thread nobody listens.

    Args:
        position: where the log ended when the turn began.
    """
    ear = _Ear(paths, position, turn_id)
    try:
        before = signal.signal(signal.SIGALRM, ear.look)
    except ValueError:  # not the main thread
        yield
        return
    signal.setitimer(signal.ITIMER_REAL, _LOOK_EVERY, _LOOK_EVERY)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Ear:
    """Reads what was appended to a log since the last look."""

    def __init__(self, paths: AgentPaths, position: Position, turn_id: str) -> None:
        self._paths = paths
        self._position = position
        self._turn_id = turn_id

    def look(self, _number: int, _frame: FrameType | None) -> None:
        """Answer the timer."""
        asked = False
        with suppress(OSError, AgentsdirError):  # whoever appends next says so
            asked = self._paths.log.stat().st_size > self._position.size and self._is_asked()
        if asked:
            signal.setitimer(signal.ITIMER_REAL, 0)  # once is enough; twice would be impatience
            raise KeyboardInterrupt

    def _is_asked(self) -> bool:
        asked = False
        with open_log(self._paths.log, self._position.size) as stream:
            for line in read_log(stream, str(self._paths.log), self._position):
                if line.after.size == line.offset:
                    break  # a writer is at work
                self._position = line.after
                record = line.record
                if record is not None and record.event == "abort.requested":
                    asked = asked or record.data.get("turn_id") == self._turn_id
        return asked
