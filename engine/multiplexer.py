"""Slots: how many sessions are in use at a time, whoever's process runs them (seed session-model).

A session in use has its log's word for it (`active`) and an entry in ROOT/slots. It is held while
its `.turn` is; released, it stays in use until another one needs the slot: then the one that was
released longest ago is suspended first. Decisions D12 and D26; docs/behaviour.md, "Slots".
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import end_what_was_left
from agentsdir.engine.provider_sessions import suspension_blob
from agentsdir.formats import times
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.directory.slots import Slots
from agentsdir.formats.directory.states import SessionState, check_transition
from agentsdir.formats.errors import AgentsdirError, NotRecorded, SlotsHeld, Uncertain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState

_PAUSE = 0.02


class Acquired(NamedTuple):
    """A session with a slot, and the provider's blob if this ended a suspension."""

    state: AgentState
    blob: bytes


class SessionMultiplexer:
    """The slots of one agents directory.

    Whoever calls `put`, `acquire` or `remove` for an agent holds its `.turn`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._slots = Slots(world.layout)

    def contains(self, paths: AgentPaths) -> bool:
        """Tell whether the agent's session is in use: `active`, with a slot."""
        return self._slots.has(paths.id) and _is_active(paths)

    def put(
        self, paths: AgentPaths, state: AgentState, held: locks.Held, *, wait: float = 0
    ) -> AgentState:
        """Give a session that was just made a slot (arguments and errors of `acquire`)."""
        state = self.acquire(paths, state, held, reason="create", wait=wait).state
        self.release(paths)
        return state

    def acquire(
        self,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        *,
        reason: str = "send",
        wait: float = 0,
    ) -> Acquired:
        """Return a session in use: as it is, or begun, or taken up from its suspension.

        Args:
            held: the agent's `.turn`.
            reason: what the log is told of the transition.
            wait: seconds to wait for a slot; negative waits for ever, 0 does not wait.

        Raises `SlotsHeld` when every slot is held until then, and `SessionStateError`.
        """
        if state.session.state is SessionState.ACTIVE and self._slots.has(paths.id):
            if len(self._slots) <= self._world.settings.max_slots:
                return Acquired(state, b"")
            # There are fewer slots than there were: who would keep one has to compete for it.
            state = _suspend(self._world, paths, state, held, "evicted")
        waits = locks.waits()
        waited, say_at = 0.0, locks.SAY_AFTER
        stuck: set[str] = set()
        while True:
            with ExitStack() as claim:
                with self._slots.locked(self._world.disk, self._active_agents):
                    others = [one for one in self._in_use() if one.id != paths.id]
                    if len(others) < self._world.settings.max_slots:
                        return self._enter(paths, state, reason)
                    movable = [one for one in others if one.id not in stuck]
                    victim = claim.enter_context(_first_free(movable))
                if victim is not None:
                    if not self._put_away(victim, "evicted"):
                        stuck.add(victim.paths.id)
                    continue
            full = f"all {self._world.settings.max_slots} slots run turns"
            own = wait if wait < 0 else max(wait - waited, 0)
            if waits.left(own, brief=False) <= 0:
                raise SlotsHeld(
                    full,
                    hint="--wait SECONDS waits for one; max_slots in settings.toml says how many",
                )
            if waited >= say_at:
                waits.tell(f"waiting for a slot: {full}")
                say_at = locks.NEVER
            self._world.sleep(_PAUSE)
            waited += _PAUSE
            waits.add(_PAUSE)
            state = read_agent(paths, known=state).state
            if state.session.state is SessionState.TERMINATED:  # closed while it waited
                check_transition(SessionState.TERMINATED, SessionState.ACTIVE, paths.id)

    def release(self, paths: AgentPaths) -> None:
        """Let others have the slot, once `.turn` is free; this is the clock of eviction."""
        # Where nothing can be noted, or the folder is gone, it is evicted sooner than it might: no
        # reason to lose the answer that came.
        with suppress(AgentsdirError, FileNotFoundError):
            self._slots.release(paths.id, self._world.now())

    def remove(self, paths: AgentPaths) -> None:
        """Free the slot of a session that is over."""
        self._slots.leave(paths.id)

    def sweep(self, seconds: float) -> list[str]:
        """Suspend the sessions in use that had no input for some seconds; return the agents."""
        try:
            oldest = times.to_text(times.from_text(self._world.now()) - timedelta(seconds=seconds))
        except OverflowError:  # longer than any calendar
            return []
        swept = []
        for paths in self._in_use(clean=False):
            with suppress(AgentsdirError):
                if (read_agent(paths).state.last_input or "") >= oldest:
                    continue
                with _first_free([paths]) as idle:
                    if idle is not None and self._put_away(idle, "idle"):
                        swept.append(paths.id)
        return swept

    def _enter(self, paths: AgentPaths, state: AgentState, reason: str) -> Acquired:
        """Write entry and transition; the caller holds the slots."""
        # The transition empties the record's blob, which is good for this turn only.
        blob = suspension_blob(paths) if state.session.state is SessionState.SUSPENDED else b""
        self._slots.enter(paths.id)
        with write_agent(paths, disk=self._world.disk, known=state) as writer:
            current = writer.state.session.state
            if current is not SessionState.ACTIVE:
                check_transition(current, SessionState.ACTIVE, paths.id)
                change = {"from": current.value, "to": "active", "reason": reason}
                writer.append("session.state", change, self._world.now())
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
                paths = self._world.layout.agent(agent_id)
                if _is_active(paths):
                    found.append(paths)
                    continue
            if clean:
                self._slots.leave(agent_id)
        return found

    def _active_agents(self) -> Iterator[str]:
        for agent_id in self._world.layout.agent_ids():
            with suppress(AgentsdirError):
                if _is_active(self._world.layout.agent(agent_id)):
                    yield agent_id

    def _put_away(self, held: Claimed, reason: str) -> bool:
        """Suspend a session whose `.turn` is held; tell whether it is not in use any more."""
        world, paths = self._world, held.paths
        try:
            end_what_was_left(paths, held.turn)
            state = close_crashed_turn(world, paths)
            if state.session.state is SessionState.ACTIVE:
                _suspend(world, paths, state, held.turn, reason)
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError:
            return False
        return True


class Claimed(NamedTuple):
    """An agent whose `.turn` this process holds."""

    paths: AgentPaths
    turn: locks.Held


@contextmanager
def _first_free(agents: list[AgentPaths]) -> Iterator[Claimed | None]:
    """Hold the `.turn` of the first of some agents where nobody else does."""
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


def _suspend(
    world: World, paths: AgentPaths, state: AgentState, held: locks.Held, reason: str
) -> AgentState:
    from agentsdir.engine.suspending import suspend_held  # most turns find a slot free

    return suspend_held(world, paths, state, held, reason)


def _is_active(paths: AgentPaths) -> bool:
    return read_agent(paths).state.session.state is SessionState.ACTIVE
