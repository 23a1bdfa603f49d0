"""Turns, one at a time for each session: slot, provider, slot again (seed session-model).

It ties sessions, providers and slots together and knows nothing of what a turn is for. What is to
be done after a turn is deferred, and done when the turn has ended well. docs/behaviour.md, "A
turn".
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.multiplexer import SessionMultiplexer
from agentsdir.engine.running import Slot, Turn, check_can_run
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.states import SessionState, check_transition

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.engine.creation import NewAgent
    from agentsdir.engine.endings import TurnResult
    from agentsdir.engine.running import Sender
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


class TurnScheduler:
    """Runs the turns of an agents directory, in this process.

    Args:
        mux: the slots; those of the root if not given.
        slot_wait: seconds that a turn waits for a slot; negative waits for ever.
    """

    def __init__(
        self,
        world: World,
        mux: SessionMultiplexer | None = None,
        *,
        slot_wait: float = locks.FOREVER,
    ) -> None:
        self.world = world
        self.mux = mux or SessionMultiplexer(world)
        self.slot_wait = slot_wait
        # What this process knows of a session is a beginning only: others may have gone on, or
        # have put it away. So every use of it reads the rest of the log.
        self._known: dict[str, AgentState] = {}
        self._deferred: deque[Callable[[], None]] = deque()

    def create_session(self, wanted: NewAgent) -> AgentPaths:
        """Make an agent whose session is in use at once (errors of `create_agent`, `SlotsHeld`)."""
        from agentsdir.engine.creation import create_agent  # a turn makes no agent

        paths = self.world.layout.agent(create_agent(self.world, wanted))
        with hold_turn(paths) as held, self.world.disk.settled():
            state = self.current(paths, held)
            self._known[paths.id] = self.mux.put(paths, state, held, wait=self.slot_wait)
        return paths

    def send_turn(
        self, paths: AgentPaths, message: dict[str, Any] | None, sender: Sender
    ) -> TurnResult:
        """Run one turn and then what was deferred; a turn that fails has nothing done after it.

        Args:
            message: one that waits in the inbox; None to have the agent go on by itself.

        Raises what `run` and the deferred work raise.
        """
        before = len(self._deferred)
        try:
            with hold_turn(paths, wait=locks.FOREVER) as held, self.world.disk.settled():
                result = self.run(paths, self.current(paths, held), held, message, sender)
            if result.error is not None:
                raise result.error
        except BaseException:
            while len(self._deferred) > before:
                self._deferred.pop()
            raise
        self.drain()
        return result

    def terminate_session(self, paths: AgentPaths) -> None:
        """Give up a session for good, once its turn has ended; what waits for it is not looked at.

        Raises `SessionStateError` for one that is terminated.
        """
        with hold_turn(paths, wait=locks.FOREVER) as held, self.world.disk.settled():
            state = self.current(paths, held)
            check_transition(state.session.state, SessionState.TERMINATED, paths.id)
            with write_agent(paths, disk=self.world.disk, known=state) as writer:
                current = writer.state.session.state
                change = {"from": current.value, "to": "terminated", "reason": "close"}
                writer.append("session.state", change, self.world.now())
        self.mux.remove(paths)
        self._known.pop(paths.id, None)

    def defer(self, work: Callable[[], None]) -> None:
        """Have something done when the turn that runs now has ended well."""
        self._deferred.append(work)

    def drain(self) -> None:
        """Do what was deferred, in order, and what is deferred by it."""
        while self._deferred:
            self._deferred.popleft()()

    def current(self, paths: AgentPaths, held: locks.Held) -> AgentState:
        """Return an agent's state, with a turn that a dead process left open closed."""
        held.check()
        return close_crashed_turn(self.world, paths, self._known.get(paths.id))

    def know(self, paths: AgentPaths, state: AgentState) -> None:
        """Take a state that was read in this process to read on from."""
        self._known[paths.id] = state

    def last_seen(self, paths: AgentPaths) -> AgentState:
        """Return an agent's state as it was at the end of its last turn here."""
        return self._known[paths.id]

    def run(
        self,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any] | None,
        sender: Sender,
    ) -> TurnResult:
        """Run one turn of an agent whose `.turn` is held.

        Raises `SlotsHeld`, with nothing begun, and what `Turn.run` raises.
        """
        check_can_run(state)
        self._sweep()
        acquired = self.mux.acquire(paths, state, held, wait=self.slot_wait)
        slot = Slot(acquired.blob, lambda: self.mux.release(paths))
        turn = Turn(self.world, paths, acquired.state, held, message, sender, slot)
        try:
            return turn.run()
        finally:
            self._known[paths.id] = turn.state

    def _sweep(self) -> None:
        if self.world.settings.idle_timeout:
            self.mux.sweep(self.world.settings.idle_timeout)
