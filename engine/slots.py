"""How many sessions are in use at a time, and suspending and resuming them (decision D11)."""

from __future__ import annotations

import base64
import os
import signal
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.engine.providers import (
    find_provider,
    open_provider,
    provider_errors,
    session_spec,
    suspension_blob,
)
from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.sync import log_transcripts, place_missing, store_transcripts
from agentsdir.engine.turn_lock import end_leftovers, hold_turn
from agentsdir.formats import signals, times
from agentsdir.formats.errors import (
    AgentsdirError,
    NotRecorded,
    ProviderError,
    SlotsHeld,
    Uncertain,
)
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.slots import Slots
from agentsdir.formats.store.state import SessionState, check_transition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

_PAUSE = 0.02
_LONG_PAUSE = 1.0
_FULL_HINT = "--wait SECONDS waits for one; max_slots in settings.toml says how many"

MAX_BLOB = 1024 * 1024  # decision D23
BLOB_PATIENCE = 10.0
"""Seconds that a provider may take to return its blob; `--wait` may leave it less."""
_AGAIN = 1.0


class Acquired(NamedTuple):
    """A session with a slot, and the provider's blob if the session was suspended."""

    state: AgentState
    blob: bytes


class SessionMultiplexer:
    """The slots of one agents directory, for the sessions of all processes (D12, D26).

    A session in use is `active` in its log and has an entry in ROOT/slots. After its turn it keeps
    the slot until another session needs it. Then the session that was released longest ago is
    suspended.

    The caller of `acquire` holds the agent's `.turn`.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._slots = Slots(services.layout)

    def acquire(
        self,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        *,
        reason: str = "send",
        wait: float = 0,
        nested: bool = False,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> Acquired:
        """Make a session active and give it a slot.

        Args:
            held: the agent's `.turn`.
            reason: of the transition, for the log.
            wait: seconds to wait for a slot; negative waits for ever, 0 does not wait.
            nested: a turn that has a slot waits for this session's: it enters beside the others.
            while_waiting: called at least once a second. What it raises ends the wait.

        Raises `SlotsHeld` when every slot is held until then, and `SessionStateError`.
        """
        if state.session.state is SessionState.ACTIVE and self._slots.has(paths.id):
            if nested or len(self._slots) <= self._services.settings.max_slots:
                return Acquired(state, b"")
            # `max_slots` was lowered: this session has to compete for a slot.
            state = suspend_held(self._services, paths, state, held, "evicted")
        if nested:
            with self._slots.locked(self._services.disk, self._active_agents):
                return self._enter(paths, state, reason)
        waits = locks.waits()
        waited, say_at = 0.0, locks.SAY_AFTER
        stuck: set[str] = set()
        full = f"all {self._services.settings.max_slots} slots run turns"
        with _in_line(self._services.layout.slots) as place:
            while True:
                left = waits.left(wait if wait < 0 else max(wait - waited, 0), brief=False)
                if place.is_first or left <= 0:
                    if (acquired := self._take(paths, state, reason, stuck)) is not None:
                        return acquired
                    if left <= 0:
                        raise SlotsHeld(full, hint=_FULL_HINT)
                if waited >= say_at:
                    waits.tell(f"waiting for a slot: {full}")
                    say_at = locks.NEVER
                pause = place.pause(self._services.sleep, left)
                waited += pause
                waits.add(pause)
                while_waiting()
                state = read_agent(paths, known=state).state
                if state.session.state is SessionState.TERMINATED:  # closed while it waited
                    check_transition(SessionState.TERMINATED, SessionState.ACTIVE, paths.id)

    def _take(
        self, paths: AgentPaths, state: AgentState, reason: str, stuck: set[str]
    ) -> Acquired | None:
        """Take a free slot, or that of a session that can be suspended; None where there is none.

        `stuck` are agents that cannot be suspended; it is added to. For the rest see `acquire`.
        """
        while True:
            with ExitStack() as claim:
                with self._slots.locked(self._services.disk, self._active_agents):
                    others = [one for one in self._in_use() if one.id != paths.id]
                    if len(others) < self._services.settings.max_slots:
                        return self._enter(paths, state, reason)
                    movable = [one for one in others if one.id not in stuck]
                    victim = claim.enter_context(_first_free(movable))
                if victim is None:
                    return None
                if not self._suspend_claimed(victim, "evicted"):
                    stuck.add(victim.paths.id)

    def check(self) -> None:
        """Raise what `acquire` raises where ROOT/slots cannot be used."""
        self._slots.check(self._services.disk)

    def release(self, paths: AgentPaths) -> None:
        """Allow the eviction of a session once `.turn` is free, in the order of these releases."""
        # An entry that cannot be written only leads to an earlier eviction.
        with suppress(AgentsdirError, FileNotFoundError):
            self._slots.release(paths.id, self._services.now())

    def sweep(self, seconds: float) -> list[str]:
        """Suspend the sessions without input for `seconds`; return the ids of their agents."""
        try:
            oldest = times.to_text(
                times.from_text(self._services.now()) - timedelta(seconds=seconds)
            )
        except OverflowError:  # longer than any calendar
            return []
        swept = []
        for paths in self._in_use(clean=False):
            with suppress(AgentsdirError):
                if (read_agent(paths).state.last_input or "") >= oldest:
                    continue
                with _first_free([paths]) as idle:
                    if idle is not None and self._suspend_claimed(idle, "idle"):
                        swept.append(paths.id)
        return swept

    def _enter(self, paths: AgentPaths, state: AgentState, reason: str) -> Acquired:
        """Write the entry and the transition; the caller holds the lock of the slots."""
        # The transition removes the blob from session.json: it is for this turn only.
        blob = suspension_blob(paths) if state.session.state is SessionState.SUSPENDED else b""
        self._slots.enter(paths.id)
        with write_agent(paths, disk=self._services.disk, known=state) as writer:
            current = writer.state.session.state
            if current is not SessionState.ACTIVE:
                check_transition(current, SessionState.ACTIVE, paths.id)
                change = {"from": current.value, "to": "active", "reason": reason}
                writer.append("session.state", change, self._services.now())
            return Acquired(writer.state, blob)

    def _in_use(self, *, clean: bool = True) -> list[AgentPaths]:
        """Return the agents in use, the one released longest ago first.

        Args:
            clean: remove entries that do not count; the caller holds the slots.
        """
        entries = self._slots.entries()
        found = []
        for agent_id in sorted(entries, key=lambda one: (entries[one], one)):
            with suppress(AgentsdirError):
                paths = self._services.layout.agent(agent_id)
                if _is_active(paths):
                    found.append(paths)
                    continue
            if clean:
                self._slots.leave(agent_id)
        return found

    def _active_agents(self) -> Iterator[str]:
        for agent_id in self._services.layout.agent_ids():
            with suppress(AgentsdirError):
                if _is_active(self._services.layout.agent(agent_id)):
                    yield agent_id

    def _suspend_claimed(self, held: Claimed, reason: str) -> bool:
        """Suspend a session whose `.turn` is held; return whether its slot is free."""
        services, paths = self._services, held.paths
        try:
            end_leftovers(paths, held.turn)
            state = close_crashed_turn(services, paths)
            if state.session.state is SessionState.ACTIVE:
                suspend_held(services, paths, state, held.turn, reason)
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError:
            return False
        return True


class _Place:
    """The place of one thread among those of this process that wait for a slot.

    The first one looks for a free slot. The others only wait until they are first: so none is
    passed over, and a hundred of them cost little more than one.
    """

    def __init__(self, line: deque[_Place]) -> None:
        self._line = line
        self._is_called = threading.Event()

    @property
    def is_first(self) -> bool:
        """Whether it is the turn of this thread to look for a slot."""
        return self._line[0] is self

    def pause(self, sleep: Callable[[float], None], left: float) -> float:
        """Wait before the next look, and at most `left` seconds; return how many it were."""
        if self.is_first:
            sleep(_PAUSE)
            return _PAUSE
        begun = time.monotonic()
        end = begun + min(_LONG_PAUSE, left)
        while (rest := signals.until_check(end - time.monotonic())) is not None and rest > 0:
            if self._is_called.wait(rest):
                break
            signals.check()
        return time.monotonic() - begun

    def call(self) -> None:
        """End the pause of this thread: it has become the first."""
        self._is_called.set()


_lines: dict[str, deque[_Place]] = {}
"""Who waits in this process, by the folder of the slots."""
# The threads that wait are not those of a forked child.
os.register_at_fork(after_in_child=_lines.clear)


@contextmanager
def _in_line(folder: Path) -> Iterator[_Place]:
    """Have this thread wait for a slot behind those that do so already."""
    line = _lines.setdefault(str(folder), deque())
    line.append(place := _Place(line))
    try:
        yield place
    finally:
        line.remove(place)
        with suppress(IndexError):  # no thread waits
            line[0].call()


class Claimed(NamedTuple):
    """An agent whose `.turn` this process holds."""

    paths: AgentPaths
    turn: locks.Held


@contextmanager
def _first_free(agents: list[AgentPaths]) -> Iterator[Claimed | None]:
    """Hold the `.turn` of the first agent whose `.turn` is free."""
    with ExitStack() as held:
        for paths in agents:
            if locks.is_held(paths.turn):
                continue
            try:
                turn = held.enter_context(locks.hold(paths.turn, wait=0))
            except AgentsdirError:
                continue
            yield Claimed(paths, turn)
            return
        yield None


def _is_active(paths: AgentPaths) -> bool:
    return read_agent(paths).state.session.state is SessionState.ACTIVE


class _BlobTimeout(BaseException):
    """The provider took too long. Not an `Exception`, so that no adapter catches it."""


def suspend(services: Services, paths: AgentPaths, *, wait: float = 0) -> AgentState:
    """Suspend an active session and store the provider's blob (D11).

    A provider that fails does not prevent it: the blob only saves time (D23). Raises
    `SessionStateError`, and `Busy` when a turn runs longer than `wait` seconds.
    """
    with hold_turn(paths, wait=wait) as held, services.disk.synced_at_end():
        state = close_crashed_turn(services, paths)
        check_transition(state.session.state, SessionState.SUSPENDED, paths.id)
        return suspend_held(services, paths, state, held, "suspend")


def suspend_held(
    services: Services, paths: AgentPaths, state: AgentState, held: locks.Held, reason: str
) -> AgentState:
    """Suspend an active session whose `.turn` is held.

    Args:
        reason: of the transition, for the log.
    """
    blob = _blob(services, paths, state)
    held.check()
    with write_agent(paths, disk=services.disk, known=state) as writer:
        current = writer.state.session.state
        check_transition(current, SessionState.SUSPENDED, paths.id)
        change = {"from": current.value, "to": "suspended", "reason": reason}
        if len(blob) <= MAX_BLOB:
            change["provider_state"] = base64.b64encode(blob).decode("ascii")
        writer.append("session.state", change, services.now())
        state = writer.state
    Slots(services.layout).leave(paths.id)
    return state


def _blob(services: Services, paths: AgentPaths, state: AgentState) -> bytes:
    """Return the provider's state for the next turn; empty for none."""
    waits = locks.waits()
    seconds = max(waits.left(BLOB_PATIENCE, brief=False), locks.LEAST)
    begun = time.monotonic()
    try:
        with _limited(seconds):
            return _provider_blob(services, paths, state)
    except _BlobTimeout:
        waits.add(time.monotonic() - begun)
        name = state.session.provider_name
        services.notify_user(
            f"agent {paths.id} is suspended without {name}'s own state: it took too long"
        )
        return b""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise `_BlobTimeout` in the block after some seconds.

    A timer and not a thread: it also interrupts a provider that waits for a pipe. Outside the main
    thread it is `signals.check` that raises.
    """
    end = time.monotonic() + seconds

    def late(_number: int, _frame: object) -> None:
        raise _BlobTimeout

    def look() -> None:
        if time.monotonic() >= end:
            raise _BlobTimeout

    try:
        before = signal.signal(signal.SIGALRM, late)
    except ValueError:  # not the main thread
        with signals.looking(look):
            yield
        return
    # Repeated: the provider's handling of the first one may block, too.
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def _provider_blob(services: Services, paths: AgentPaths, state: AgentState) -> bytes:
    try:
        _, provider = find_provider(state)
        if provider.runs_program:
            return b""  # a program does not run between turns
        spec = session_spec(services, paths, state, provider)
        with open_provider(services, provider, spec) as session:
            with provider_errors():
                natives = session.transcripts()
            with write_agent(paths, disk=services.disk, known=state) as writer:
                log_transcripts(writer, store_transcripts(writer, natives), services.now())
            with provider_errors():
                return bytes(session.suspend())
    except ProviderError:
        return b""


def resume(services: Services, paths: AgentPaths, *, wait: float = 0) -> AgentState:
    """Make a suspended session active again, in a slot; no process is started.

    Stored transcripts that the client lacks are written to its store (decision D11).

    Args:
        wait: seconds to wait for a turn to end, and for a slot; negative waits for ever.

    Raises `SessionStateError` for an active or terminated session, `Busy`, `SlotsHeld`, and what
    `place_missing` raises; the session stays suspended then.
    """
    with hold_turn(paths, wait=wait) as held, services.disk.synced_at_end():
        state = close_crashed_turn(services, paths)
        check_transition(state.session.state, SessionState.ACTIVE, paths.id)
        _place_transcripts(services, paths, state)
        mux = SessionMultiplexer(services)
        state = mux.acquire(paths, state, held, reason="resume", wait=wait).state
        mux.release(paths)
        return state


def _place_transcripts(services: Services, paths: AgentPaths, state: AgentState) -> None:
    try:
        _, provider = find_provider(state)
    except ProviderError:
        return  # `send` reports that there is no provider
    if provider.runs_program:
        services.check_trust()
        place_missing(provider, session_spec(services, paths, state, provider))
