"""Cancelling a running turn: the request in the log, and the token that notices it (D15).

The holder of `.turn` reads its log on a timer, and at once after a wake signal. A timer and not a
thread: it also interrupts a provider that waits for a pipe. Outside the main thread, where no
handler runs, the turn reads its log itself, between events and while it waits (`formats.signals`).
Only the log counts, so a late signal cancels nothing else.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import processes
from agentsdir.adapters.protocol import Process
from agentsdir.engine.inbox import Message, append_message
from agentsdir.engine.lookup import descendants
from agentsdir.formats import signals
from agentsdir.formats.errors import AgentsdirError, Busy, NoSuchAgent, SessionStateError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.locks import NEVER, read_note
from agentsdir.formats.store.log import open_log, read_log
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Position
    from agentsdir.formats.store.state import AgentState

WAKE_SIGNAL = signal.SIGURG
"""Makes a holder read its log. Processes without a handler ignore this signal."""
_POLL_INTERVAL = 0.5  # seconds between two reads of the log
_TICK = 0.1  # the same, where each is shown to a person

_WAIT = 0.02


class TurnCancelled(KeyboardInterrupt):
    """A request in the log cancelled the turn, not a signal from the terminal."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DeadlineExceeded(KeyboardInterrupt):
    """The turn took longer than its `timeout`."""


class CancelToken:
    """Raises in the turn's thread when the log requests the end of a turn, or its time is over.

    Args:
        position: the end of the log when the turn began.
        timeout: seconds from now after which the turn is cancelled; 0 for never.
        on_tick: called after each read of the log.
    """

    def __init__(
        self,
        paths: AgentPaths,
        position: Position,
        turn_id: str,
        timeout: float = 0,
        on_tick: Callable[[], None] | None = None,
    ) -> None:
        self._paths = paths
        self._position = position
        self._turn_id = turn_id
        self._deadline = time.monotonic() + timeout if timeout else NEVER
        self._on_tick = on_tick
        self._interval = _POLL_INTERVAL if on_tick is None else _TICK
        self._next_tick = 0.0
        self._was_raised = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Raise `TurnCancelled` in the block when a request to end its turn stands in the log.

        A request that was cleared does not count. `DeadlineExceeded` is raised when the time is
        over. Each request is raised once. Outside the main thread it is `signals.check` that
        raises.
        """
        try:
            before = signal.signal(signal.SIGALRM, self._on_signal)
        except ValueError:  # not the main thread
            with signals.looking(self._look):
                yield
            return
        wake_before = signal.signal(WAKE_SIGNAL, self._on_signal)
        try:
            self._on_signal(0, None)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            signal.signal(WAKE_SIGNAL, wake_before)

    def raise_if_cancelled(self) -> None:
        """Raise `TurnCancelled` or `DeadlineExceeded` if the turn has to end now."""
        if time.monotonic() >= self._deadline:
            self._deadline, self._was_raised = NEVER, True
            raise DeadlineExceeded
        self._position, reason = self._read()
        if reason:
            self._was_raised = True
            raise TurnCancelled(reason)

    def is_cancelled(self) -> bool:
        """Tell whether the turn has to end, or had to; any thread may ask."""
        return self._was_raised or time.monotonic() >= self._deadline or bool(self._read()[1])

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        left = self._deadline - time.monotonic()
        signal.setitimer(
            signal.ITIMER_REAL, min(self._interval, left) if left > 0 else self._interval
        )
        self.raise_if_cancelled()
        if self._on_tick is not None:
            self._on_tick()

    def _look(self) -> None:
        """Do what `_on_signal` does, for the waits of another thread than the main one."""
        self.raise_if_cancelled()
        if self._on_tick is not None and time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + _TICK
            self._on_tick()

    def _read(self) -> tuple[Position, str]:
        """Read the new records; return where they end, and the reason of a request, or nothing."""
        position, reason = self._position, ""
        with suppress(OSError, AgentsdirError):  # the next append reports it
            if self._paths.log.stat().st_size <= position.size:
                return position, ""
            with open_log(self._paths.log, position.size) as stream:
                for line in read_log(stream, str(self._paths.log), position):
                    if line.after.size == line.offset:
                        break  # a writer is at work
                    position = line.after
                    record = line.record
                    if record is None or record.data.get("turn_id") != self._turn_id:
                        continue
                    if record.event == "abort.requested":
                        reason = str(record.data.get("reason") or "interrupt")
                    elif record.event == "abort.cleared":
                        reason = ""
        return position, reason


class RunningTurn(NamedTuple):
    """A turn that runs, or ran when it was cancelled."""

    paths: AgentPaths
    turn_id: str

    @property
    def runs(self) -> bool:
        """Whether the log has no end of the turn. A turn of a removed agent has ended."""
        try:
            turn = read_agent(self.paths).state.open_turn
        except NoSuchAgent:
            return False
        return turn is not None and turn["turnId"] == self.turn_id and not turn["ended"]

    def as_json(self) -> dict[str, Any]:
        """Return the turn as a command prints it with `--json`."""
        return {"agentId": self.paths.id, "turnId": self.turn_id, "ended": not self.runs}


class InterruptResult(NamedTuple):
    """The turns that `interrupt` cancelled, and the id of the message that it queued, if any.

    `refused` are descendants whose log could not be written, each with the error.
    """

    asked: list[RunningTurn]
    message_id: str | None
    refused: list[tuple[AgentPaths, AgentsdirError]]


def interrupt(
    services: Services,
    paths: AgentPaths,
    reason: str = "",
    content: list[dict[str, Any]] | None = None,
    sender: str = "cli",
    turn_id: str = "",
) -> InterruptResult:
    """Request the end of the running turns of an agent and its descendants (docs/behaviour.md).

    It does not wait for them. All requests are in the logs before the first signal is sent.

    Args:
        reason: why, for the record.
        content: a message for the agent, which stays queued for its next turn.
        sender: of the message: an agent's id, or `cli`.
        turn_id: of the only turn that is meant; empty for the one that runs.

    Raises `SessionStateError` for a closed agent, and (kind ``not-running``) where no turn runs and
    no message is left: then nothing is recorded; and what `write_agent` and `check_trust` raise.
    """
    services.check_trust()
    message_id: str | None = None
    with write_agent(paths, disk=services.disk) as writer:
        state = writer.state
        if state.session.state is SessionState.TERMINATED:
            raise SessionStateError(f"agent {paths.id} is closed", kind="closed")
        if turn_id and (state.open_turn is None or state.open_turn["turnId"] != turn_id):
            raise _not_running(paths, state)
        if content:
            # First, so that the process that runs the agent's turns finds it.
            message_id = append_message(writer, services, Message(content, sender))
        own = request_cancel(services, writer, "interrupt", reason)
    asked, refused = request_cancel_below(services, paths, reason)
    asked = [*([own] if own else []), *asked]
    if not asked and not content:
        raise _not_running(paths, state)
    wake_holders(asked)
    return InterruptResult(asked, message_id, refused)


def request_cancel_below(
    services: Services, paths: AgentPaths, message: str = ""
) -> tuple[list[RunningTurn], list[tuple[AgentPaths, AgentsdirError]]]:
    """Append a request to the log of each descendant with a running turn, unless one is there.

    Returns the turns with new requests, and the agents whose logs could not be written.
    """
    asked: list[RunningTurn] = []
    refused: list[tuple[AgentPaths, AgentsdirError]] = []
    for listed in descendants(services.layout, paths.id):
        if not locks.is_held(listed.paths.turn):
            continue
        try:
            with write_agent(listed.paths, disk=services.disk) as writer:
                turn = writer.state.open_turn
                if turn is not None and not turn["aborted"]:
                    one = request_cancel(services, writer, "parent", message)
                    asked += [one] if one else []
        except AgentsdirError as error:
            refused.append((listed.paths, error))
    return asked, refused


def cancel_below(services: Services, paths: AgentPaths) -> None:
    """Cancel the turns of an agent's descendants, because its own turn was interrupted."""
    wake_holders(request_cancel_below(services, paths)[0])


def request_cancel(
    services: Services, writer: AgentWriter, reason: str, message: str = ""
) -> RunningTurn | None:
    """Append a request to end the turn that runs; None where none does.

    Args:
        reason: interrupt, parent or close.
        message: why, in free text.
    """
    if (running := running_turn(writer)) is not None:
        request = {"turn_id": running.turn_id, "reason": reason}
        if message:
            request["message"] = message
        writer.append("abort.requested", request, services.now())
    return running


def running_turn(writer: AgentWriter) -> RunningTurn | None:
    """Return the open turn of an agent if a process holds it."""
    turn = writer.state.open_turn
    if turn is None or turn["ended"] or not locks.is_held(writer.paths.turn):
        return None
    return RunningTurn(writer.paths, turn["turnId"])


def _not_running(paths: AgentPaths, state: AgentState) -> AgentsdirError:
    hint = None
    if state.open_turn is not None:
        hint = f"its process died; `agentsdir restore {paths.id}` ends the turn"
    return SessionStateError(f"agent {paths.id} runs no turn", hint=hint, kind="not-running")


def wake_holders(asked: Sequence[RunningTurn]) -> None:
    """Signal the holders to read their logs now; a holder without a note reads it on its timer."""
    for paths, turn_id in asked:
        note = read_note(paths)
        if note is None or note.turn_id != turn_id or not locks.is_held(paths.turn):
            continue
        if processes.is_alive(holder := Process(*note.holder)):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(holder.pid, WAKE_SIGNAL)


def wait_for_turns(services: Services, asked: Sequence[RunningTurn]) -> list[RunningTurn]:
    """Wait until each turn has ended; return those whose process died before.

    Raises `Busy` if a turn does not end in time.
    """
    for one in asked:
        what = f"agent {one.paths.id}"
        waiting = locks.Wait(one.paths.turn, what, locks.FOREVER, brief=True)
        while one.runs and locks.is_held(one.paths.turn):
            if not waiting.pause(_WAIT, services.sleep):
                raise Busy(f"{waiting.why}; it was asked to end", hint="--no-wait does not wait")
        waiting.end()
    return [one for one in asked if one.runs]


def clear_abort(services: Services, paths: AgentPaths) -> str | None:
    """Clear a request to end the running turn that was not carried out; return the turn's id.

    Returns None, and records nothing, if there is no request. Raises what `write_agent` raises.
    """
    with write_agent(paths, disk=services.disk) as writer:
        turn = writer.state.open_turn
        closed = writer.state.session.state is SessionState.TERMINATED
        if turn is None or turn["ended"] or not turn["aborted"] or closed:
            return None
        writer.append("abort.cleared", {"turn_id": turn["turnId"]}, services.now())
        return str(turn["turnId"])
