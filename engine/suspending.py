"""Suspending a session (seed session-model; decision D11)."""

from __future__ import annotations

import base64
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.provider_sessions import (
    find_provider,
    open_provider,
    provider_errors,
    session_spec,
)
from agentsdir.engine.syncing import name_transcripts, store_transcripts
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.slots import Slots
from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState

MAX_BLOB = 1024 * 1024  # decision D23
BLOB_PATIENCE = 10.0
"""Seconds that a provider may take to say its blob; `--wait` may leave it less."""
_AGAIN = 1.0


class _TooLate(BaseException):
    """The provider took too long; no `except Exception` of an adapter keeps it."""


def suspend(world: World, paths: AgentPaths, *, wait: float = 0) -> AgentState:
    """Take an active session out of use, keeping the provider's blob.

    A provider that fails or is gone does not keep a session in use: the blob is only a short cut
    (D23). Raises `SessionStateError`, and `Busy` when a turn runs longer than `wait` seconds.
    """
    with hold_turn(paths, wait=wait) as held, world.disk.settled():
        state = close_crashed_turn(world, paths)
        check_transition(state.session.state, SessionState.SUSPENDED, paths.id)
        return suspend_held(world, paths, state, held, "suspend")


def suspend_held(
    world: World, paths: AgentPaths, state: AgentState, held: locks.Held, reason: str
) -> AgentState:
    """Suspend an active session whose `.turn` is held.

    Args:
        reason: what the log is told.
    """
    blob = _blob(world, paths, state)
    held.check()
    with write_agent(paths, disk=world.disk, known=state) as writer:
        current = writer.state.session.state
        check_transition(current, SessionState.SUSPENDED, paths.id)
        change = {"from": current.value, "to": "suspended", "reason": reason}
        if len(blob) <= MAX_BLOB:
            change["provider_state"] = base64.b64encode(blob).decode("ascii")
        writer.append("session.state", change, world.now())
        state = writer.state
    Slots(world.layout).leave(paths.id)
    return state


def _blob(world: World, paths: AgentPaths, state: AgentState) -> bytes:
    """Return what the provider wants to be handed at the next turn; nothing if it has nothing."""
    waits = locks.waits()
    seconds = max(waits.left(BLOB_PATIENCE, brief=False), locks.LEAST)
    begun = time.monotonic()
    try:
        with _limited(seconds):
            return _asked(world, paths, state)
    except _TooLate:
        waits.add(time.monotonic() - begun)
        name = state.session.provider_name
        world.tell(f"agent {paths.id} is suspended without {name}'s own state: it took too long")
        return b""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_TooLate` in the block once it takes longer; elsewhere than in the main thread, not.

    A timer, and no thread: a provider that waits for a pipe goes on when it comes.
    """

    def late(_number: int, _frame: object) -> None:
        raise _TooLate

    try:
        before = signal.signal(signal.SIGALRM, late)
    except ValueError:  # not the main thread
        yield
        return
    # Again and again: what it does about the first one may block, too.
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _asked(world: World, paths: AgentPaths, state: AgentState) -> bytes:
    try:
        _, provider = find_provider(state)
        if provider.runs_program:
            return b""  # no program runs between turns, and none is started to be asked
        spec = session_spec(world, paths, state, provider)
        with open_provider(world, provider, spec) as session:
            with provider_errors():
                natives = session.transcripts()
            with write_agent(paths, disk=world.disk, known=state) as writer:
                name_transcripts(writer, store_transcripts(writer, natives), world.now())
            with provider_errors():
                return bytes(session.suspend())
    except ProviderError:
        return b""
