"""An open turn as its holder knows it: its log, and the note in `.turn` (decisions D10 and D14)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.contract import Decision
from agentsdir.engine.endings import Denial
from agentsdir.engine.holding import has_leftovers, this_process
from agentsdir.engine.provider_sessions import TurnHost
from agentsdir.engine.syncing import log_block
from agentsdir.formats import jsontext
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.errors import HookFailed
from agentsdir.formats.reading.blocks import check_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.adapters.contract import Process, ToolRequest
    from agentsdir.engine.world import World
    from agentsdir.formats.directory import locks
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.blocks import Block


class OpenTurn:
    """One turn, from before its `turn.start` on, while `.turn` is held.

    `state` is the agent's as of the last record that was read or appended here.
    """

    def __init__(
        self, world: World, paths: AgentPaths, state: AgentState, held: locks.Held
    ) -> None:
        self.world = world
        self.paths = paths
        self.state = state
        self.id = world.ids.agent()
        self._held = held
        self._process: Process | None = None
        self.denials: list[Denial] = []

    @property
    def has_started(self) -> bool:
        """Whether this turn has its turn.start in the log."""
        turn = self.state.open_turn
        return turn is not None and turn["turnId"] == self.id

    @contextmanager
    def writer(self) -> Iterator[AgentWriter]:
        """Write on from the state this turn already knows, as long as the turn is ours."""
        self._held.check()
        # What was said in a turn is not given up because another process is stopped.
        patient = self.has_started
        with write_agent(
            self.paths, disk=self.world.disk, known=self.state, patient=patient
        ) as writer:
            self.state = writer.state
            yield writer

    def append(self, event: str, data: dict[str, Any]) -> None:
        """Append one record of this turn; its data need not name it."""
        with self.writer() as writer:
            writer.append(event, {"turn_id": self.id, **data}, self.world.now())

    def log(self, block: Block) -> Block:
        """Log a block of this turn; return it as it was logged."""
        check_block(block)
        with self.writer() as writer:
            return log_block(writer, self.id, block, self.world.now())

    def host(self, permission_mode: str) -> TurnHost:
        """Return what this turn adds to the user's client.

        Args:
            permission_mode: what goes before all that was recorded or configured; empty for none.
        """
        return TurnHost(self.id, permission_mode, self._confirm, self._began, self._named)

    def _began(self, process: Process) -> None:
        """Note whose program runs now, for whoever finds this process dead (decision D14)."""
        from agentsdir.formats.directory.turn_notes import Started, TurnNote, write_note

        write_note(self._held, TurnNote(self.id, this_process(), Started(*process)))
        self._process = process

    def clear_note(self) -> None:
        """Empty `.turn`, unless something still runs that the next holder has to end."""
        if self._process is not None and not has_leftovers(self.paths):
            from agentsdir.formats.directory.turn_notes import clear_note

            clear_note(self._held)

    def _named(self, native_id: str) -> None:
        """Log at once under which id the client's session is: nothing else would find it again."""
        if native_id != self.state.native["id"]:
            from agentsdir.engine.native_changes import change_native

            with self.writer() as writer:
                change_native(writer, native_id, "named", self.world.now())

    def _confirm(self, ask: Callable[[ToolRequest], Decision], request: ToolRequest) -> Decision:
        """Have a tool call confirmed; a hook that fails denies it, and the log has why."""
        try:
            decision = ask(request)
        except HookFailed as failed:
            with self.writer() as writer:
                said = jsontext.clean({"hook": failed.hook, "message": failed.message}, set())
                writer.append("hook.failed", said, self.world.now())
            decision = Decision(allowed=False, reason=failed.message)
        if not decision.allowed:
            self.denials.append(Denial.of(request, decision))
        return decision
