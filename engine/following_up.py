"""What is run after a turn: children, messages it sent, and the answers to both (D17 to D19).

docs/behaviour.md, "After a turn". All of it is done when `.turn` is free again, so that one slot is
enough.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from agentsdir.engine.endings import Told, TurnResult
from agentsdir.engine.hearing import AskedToEnd
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.provider_sessions import find_provider
from agentsdir.engine.running import Sender
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.errors import (
    AgentsdirError,
    NoSuchAgent,
    NotRecorded,
    SlotsHeld,
    Uncertain,
    UsageError,
)

if TYPE_CHECKING:
    from agentsdir.engine.scheduler import TurnScheduler
    from agentsdir.engine.world import StartedTurn, World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.log import Position
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.stream import StreamEvent


def _ignore(_event: StreamEvent) -> None:
    """Another sender's turn is in the log; a command prints its own only."""


QUIET = Sender(_ignore)


class FollowingUp:
    """Runs messages, and what follows from their turns, in this process.

    Args:
        alone: leave the answers to others for whoever started this.
    """

    def __init__(self, world: World, scheduler: TurnScheduler, *, alone: bool = False) -> None:
        self._world = world
        self._scheduler = scheduler
        self._alone = alone
        self._hands_over = False
        self._listeners: dict[str, Sender] = {}

    def listen(self, paths: AgentPaths, sender: Sender) -> None:
        """Have `sender` hear of the agent's turns that follow, too."""
        self._listeners[paths.id] = Sender(sender.on_event, permission_mode=sender.permission_mode)

    def run_until(
        self, paths: AgentPaths, message_id: str, sender: Sender, *, wait: float = locks.FOREVER
    ) -> TurnResult:
        """Run an agent's messages up to one of them, and what follows; return how that one ended.

        Args:
            sender: what is wanted of that message's turn.
            wait: seconds to wait for another turn to end; negative waits for ever.

        Raises what `engine.turns.say` does.
        """
        own = self._run_until(paths, message_id, sender, wait, recorded=True)
        assert own is not None
        # Whose turn was ended from elsewhere is to be gone soon; others do what is left.
        self._hands_over = isinstance(own.error, AskedToEnd)
        self._drain()
        if own.error is not None:
            raise own.error
        return own

    def run_all(
        self, paths: AgentPaths, sender: Sender, *, wait: float = locks.FOREVER
    ) -> list[TurnResult]:
        """Run all that waits for an agent, or a turn without a message, and what follows.

        Raises what `run_until` does, of several failures the last, and `UsageError` (kind
        ``no-message``) where nothing waits and the provider needs a prompt.
        """
        done = self._run_all(paths, sender, wait)
        self._drain()
        failed = [result.error for result in done if result.error is not None]
        if failed:
            raise failed[-1]
        return done

    def _drain(self) -> None:
        """Run what was put off; it waits for its slots, as nobody else would come to run it."""
        self._scheduler.slot_wait = locks.FOREVER
        locks.waits().limit = locks.FOREVER
        self._scheduler.drain()

    def _run_until(
        self,
        paths: AgentPaths,
        message_id: str,
        sender: Sender,
        wait: float,
        *,
        recorded: bool = False,
    ) -> TurnResult | None:
        """Return how the message ended; of one that another process ran only if `recorded`."""
        own = None
        try:
            queued = (
                f"the message stays queued as {message_id}; "
                f"`agentsdir send {paths.id} --no-message` runs it"
            )
            with (
                hold_turn(paths, wait=wait, hint=queued) as held,
                self._world.disk.settled(),
            ):
                state = self._scheduler.current(paths, held)
                while own is None and any(m["messageId"] == message_id for m in state.pending):
                    message = state.pending[0]
                    mine = message["messageId"] == message_id
                    result = self._turn(paths, state, held, message, sender if mine else QUIET)
                    if mine:
                        own = result
                    else:
                        state = self._scheduler.current(paths, held)
                if own is None and recorded:
                    # An ephemeral agent may be gone once `.turn` is free.
                    own = _recorded(paths, message_id, sender)
        except SlotsHeld as error:
            raise SlotsHeld(f"{error.message}; {queued}", hint=error.hint) from None
        except KeyboardInterrupt:
            with suppress(AgentsdirError):
                if any(one["messageId"] == message_id for one in read_agent(paths).state.pending):
                    self._world.tell(queued)
            raise
        self._remove_spent(paths, state)
        return own

    def _run_all(self, paths: AgentPaths, sender: Sender, wait: float) -> list[TurnResult]:
        done: list[TurnResult] = []
        with hold_turn(paths, wait=wait) as held, self._world.disk.settled():
            state = self._scheduler.current(paths, held)
            if not state.pending:
                self._check_needs_no_prompt(paths, state)
                done.append(self._turn(paths, state, held, None, sender))
                state = self._scheduler.current(paths, held)
            while state.pending:
                done.append(self._turn(paths, state, held, state.pending[0], sender))
                state = self._scheduler.current(paths, held)
        self._remove_spent(paths, state)
        return done

    def _remove_spent(self, paths: AgentPaths, state: AgentState) -> None:
        if state.ephemeral:
            from agentsdir.engine.spawning.ephemeral import remove_spent

            remove_spent(self._world, paths)

    def _check_needs_no_prompt(self, paths: AgentPaths, state: AgentState) -> None:
        if find_provider(state)[1].runs_program:
            raise UsageError(
                f"nothing waits for agent {paths.id}, and {state.session.provider_name} does not "
                "go on without a prompt",
                kind="no-message",
            )

    def _turn(
        self,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any] | None,
        sender: Sender,
    ) -> TurnResult:
        """Run one turn, and put off what follows from it until `.turn` is free."""
        # A long log is not read again for the one text that this turn may leave.
        since = None if state.undelivered else state.position
        result = self._scheduler.run(paths, state, held, message, sender)
        self._hand_out(paths, self._scheduler.last_seen(paths), since)
        if result.error is None:
            self._defer(paths, state, result)
        if not self._alone:
            for told in result.told:
                self._scheduler.defer(partial(self._answer, told))
        return result

    def _hand_out(self, paths: AgentPaths, state: AgentState, since: Position | None) -> None:
        if state.undelivered:
            from agentsdir.engine.routing.outbox import hand_out

            hand_out(self._world, paths, state, since)

    def _defer(self, paths: AgentPaths, state: AgentState, result: TurnResult) -> None:
        # What an earlier turn asked for waits too, where its process died before it was run.
        if state.children or any("child" in one for one in result.deferred):
            self._scheduler.defer(partial(self._run_children, paths))
        for sent in (one for one in result.deferred if "to" in one):
            told = partial(self._run_sent, sent["to"], sent["messageId"])
            self._scheduler.defer(told)

    def _run_sent(self, agent_id: str, message_id: str) -> None:
        with suppress(NoSuchAgent):  # removed meanwhile, and its inbox with it
            self._answer(Told(self._world.layout.agent(agent_id), message_id))

    def _answer(self, told: Told) -> None:
        """Have an agent look at a message of ours; how that goes is its own affair."""
        if self._hands_over:
            with suppress(OSError):  # then it waits for whoever comes by
                if self._world.start is not None:
                    self._world.start(told.paths, told.message_id, alone=False)
            return
        sender = self._listeners.get(told.paths.id, QUIET)
        try:
            self._run_until(told.paths, told.message_id, sender, locks.FOREVER)
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError as error:
            self._world.tell(
                f"message {told.message_id} waits for {told.paths.id}: {error.message}"
            )

    def _run_children(self, parent: AgentPaths) -> None:
        """Run spawned agents: one here, several side by side in processes of their own."""
        from agentsdir.engine.spawning.telling import waiting_children

        with suppress(NoSuchAgent):  # removed meanwhile, and who it asked for with it
            state = read_agent(parent).state
            self._run_waiting(parent, waiting_children(self._world.layout, state))

    def _run_waiting(self, parent: AgentPaths, prompts: list[tuple[AgentPaths, str]]) -> None:
        here = deque(Told(*prompt) for prompt in prompts)
        started: list[StartedTurn] = []
        try:
            if self._world.start is not None and len(here) > 1 and not self._hands_over:
                with suppress(OSError):  # the rest is run here, if the system lets us have no more
                    while here:
                        started.append(self._world.start(*here[0], alone=True))
                        here.popleft()
            for told in here:
                self._answer(told)
            for one in started:
                one.wait()
        except BaseException:
            for one in started:
                one.interrupt()
            raise
        if started:  # what they said waits in the parent's inbox
            for waiting in read_agent(parent).state.pending:
                if waiting["replyTo"]:
                    self._scheduler.defer(partial(self._answer, Told(parent, waiting["messageId"])))


def _recorded(paths: AgentPaths, message_id: str, sender: Sender) -> TurnResult:
    from agentsdir.engine.results import recorded_result

    try:
        return recorded_result(paths, message_id, sender.on_event)
    except AgentsdirError as error:
        return TurnResult(message_id, None, "failed", "", None, None, error=error)
