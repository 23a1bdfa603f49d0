"""The loop that runs what waits: a message, the turns that follow from it, and their results."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.cancel import TurnCancelled
from agentsdir.engine.inbox import Message, enqueue_and_read
from agentsdir.engine.notices import subagent_blocks
from agentsdir.engine.providers import find_provider
from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.replay import recorded_event
from agentsdir.engine.result import QueuedMessage, TurnResult
from agentsdir.engine.slots import SessionMultiplexer
from agentsdir.engine.turn import SlotLease, Turn, TurnOptions, check_can_run
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.errors import (
    AgentsdirError,
    NoSuchAgent,
    NotRecorded,
    ProviderError,
    SessionStateError,
    SlotsHeld,
    TurnTimeout,
    Uncertain,
    UsageError,
)
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.log import read_records
from agentsdir.formats.store.state import SessionState, check_transition

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.engine.create import NewAgent
    from agentsdir.engine.services import Services, TurnProcess
    from agentsdir.engine.spawn import SpawnedChild
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Position
    from agentsdir.formats.store.state import AgentState


# How a message ended whose turn another process ran: as the log says.


def recorded_result(
    paths: AgentPaths, message_id: str, on_event: Callable[[StreamEvent], None]
) -> TurnResult:
    """Return how a message ended, from the log: another process ran it.

    `on_event` is called with what `replay` makes of its turn. Raises `ProviderError` when the turn
    failed, and `SessionStateError` when the agent was closed before it.
    """
    turn_id: str | None = None
    for record in read_records(paths.log):
        data = record.data
        if record.event == "turn.start" and message_id in data.get("message_ids", ()):
            turn_id = data["turn_id"]
        elif record.event == "message.delivered" and turn_id is None:
            if data.get("message_id") == message_id:
                raise SessionStateError(
                    "the agent was closed before the message was looked at", kind="closed"
                )
        elif turn_id is None or data.get("turn_id") != turn_id:
            continue
        elif record.event == "turn.error":
            raise ProviderError(data["message"], kind=data["kind"])
        elif record.event == "turn.aborted" and data["reason"] == "timeout":
            raise TurnTimeout("the turn was ended because its time was over")
        elif record.event == "turn.aborted":
            raise ProviderError(f"the turn was aborted: {data['reason']}", kind="turn-aborted")
        elif event := recorded_event(record):
            on_event(event)
        if record.event == "turn.complete" and data.get("turn_id") == turn_id:
            said, stop, usage = data["response"], data["stop_reason"], data["usage"]
            cost = data.get("cost_usd")
            return TurnResult(message_id, turn_id, "completed", said, stop, usage, cost=cost)
    raise ProviderError(f"the log does not say how message {message_id} ended", kind="turn-unknown")


# Turns, one at a time for each session: slot, provider, slot again (seed session-model).
#
# It ties sessions, providers and slots together and knows nothing of what a turn is for. What is to
# be done after a turn is deferred, and done when the turn has ended well.
# docs/behaviour.md, "A turn".


class TurnScheduler:
    """Runs the turns of an agents directory, in this process.

    Args:
        mux: the slots; those of the root if not given.
        slot_wait: seconds that a turn waits for a slot; negative waits for ever.
    """

    def __init__(
        self,
        services: Services,
        mux: SessionMultiplexer | None = None,
        *,
        slot_wait: float = locks.FOREVER,
    ) -> None:
        self.services = services
        self.mux = mux or SessionMultiplexer(services)
        self.slot_wait = slot_wait
        # What this process knows of a session is a beginning only: others may have gone on, or
        # have put it away. So every use of it reads the rest of the log.
        self._known: dict[str, AgentState] = {}
        self._deferred: deque[Callable[[], None]] = deque()

    def create_session(self, wanted: NewAgent) -> AgentPaths:
        """Make an agent whose session is in use at once (errors of `create_agent`, `SlotsHeld`)."""
        from agentsdir.engine.create import create_agent  # a turn makes no agent

        paths = self.services.layout.agent(create_agent(self.services, wanted))
        with hold_turn(paths) as held, self.services.disk.settled():
            state = self.current(paths, held)
            self._known[paths.id] = self.mux.put(paths, state, held, wait=self.slot_wait)
        return paths

    def send_turn(
        self, paths: AgentPaths, message: dict[str, Any] | None, sender: TurnOptions
    ) -> TurnResult:
        """Run one turn and then what was deferred; a turn that fails has nothing done after it.

        Args:
            message: one that waits in the inbox; None to have the agent go on by itself.

        Raises what `run` and the deferred work raise.
        """
        before = len(self._deferred)
        try:
            with hold_turn(paths, wait=locks.FOREVER) as held, self.services.disk.settled():
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
        with hold_turn(paths, wait=locks.FOREVER) as held, self.services.disk.settled():
            state = self.current(paths, held)
            check_transition(state.session.state, SessionState.TERMINATED, paths.id)
            with write_agent(paths, disk=self.services.disk, known=state) as writer:
                current = writer.state.session.state
                change = {"from": current.value, "to": "terminated", "reason": "close"}
                writer.append("session.state", change, self.services.now())
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
        return close_crashed_turn(self.services, paths, self._known.get(paths.id))

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
        sender: TurnOptions,
    ) -> TurnResult:
        """Run one turn of an agent whose `.turn` is held.

        Raises `SlotsHeld`, with nothing begun, and what `Turn.run` raises.
        """
        check_can_run(state)
        self._sweep()
        acquired = self.mux.acquire(paths, state, held, wait=self.slot_wait)
        slot = SlotLease(acquired.blob, lambda: self.mux.release(paths))
        turn = Turn(self.services, paths, acquired.state, held, message, sender, slot)
        try:
            return turn.run()
        finally:
            self._known[paths.id] = turn.state

    def _sweep(self) -> None:
        if self.services.settings.idle_timeout:
            self.mux.sweep(self.services.settings.idle_timeout)


# What is run after a turn: children, messages it sent, and the answers to both (D17 to D19).
#
# docs/behaviour.md, "After a turn". All of it is done when `.turn` is free again, so that one slot
# is enough.


def _ignore(_event: StreamEvent) -> None:
    """Another sender's turn is in the log; a command prints its own only."""


QUIET = TurnOptions(_ignore)


class FollowingUp:
    """Runs messages, and what follows from their turns, in this process.

    Args:
        alone: leave the answers to others for whoever started this.
    """

    def __init__(
        self, services: Services, scheduler: TurnScheduler, *, alone: bool = False
    ) -> None:
        self._services = services
        self._scheduler = scheduler
        self._alone = alone
        self._hands_over = False
        self._listeners: dict[str, TurnOptions] = {}

    def listen(self, paths: AgentPaths, sender: TurnOptions) -> None:
        """Have `sender` hear of the agent's turns that follow, too."""
        self._listeners[paths.id] = TurnOptions(
            sender.on_event, permission_mode=sender.permission_mode
        )

    def run_until(
        self,
        paths: AgentPaths,
        message_id: str,
        sender: TurnOptions,
        *,
        wait: float = locks.FOREVER,
    ) -> TurnResult:
        """Run an agent's messages up to one of them, and what follows; return how that one ended.

        Args:
            sender: what is wanted of that message's turn.
            wait: seconds to wait for another turn to end; negative waits for ever.

        Raises what `engine.dispatcher.say` does.
        """
        own = self._run_until(paths, message_id, sender, wait, recorded=True)
        assert own is not None
        # Whose turn was ended from elsewhere is to be gone soon; others do what is left.
        self._hands_over = isinstance(own.error, TurnCancelled)
        self._drain()
        if own.error is not None:
            raise own.error
        return own

    def run_all(
        self, paths: AgentPaths, sender: TurnOptions, *, wait: float = locks.FOREVER
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
        sender: TurnOptions,
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
                self._services.disk.settled(),
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
                    self._services.notify_user(queued)
            raise
        self._remove_if_finished(paths, state)
        return own

    def _run_all(self, paths: AgentPaths, sender: TurnOptions, wait: float) -> list[TurnResult]:
        done: list[TurnResult] = []
        with hold_turn(paths, wait=wait) as held, self._services.disk.settled():
            state = self._scheduler.current(paths, held)
            if not state.pending:
                self._check_needs_no_prompt(paths, state)
                done.append(self._turn(paths, state, held, None, sender))
                state = self._scheduler.current(paths, held)
            while state.pending:
                done.append(self._turn(paths, state, held, state.pending[0], sender))
                state = self._scheduler.current(paths, held)
        self._remove_if_finished(paths, state)
        return done

    def _remove_if_finished(self, paths: AgentPaths, state: AgentState) -> None:
        if state.ephemeral:
            from agentsdir.engine.close import remove_if_finished

            remove_if_finished(self._services, paths)

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
        sender: TurnOptions,
    ) -> TurnResult:
        """Run one turn, and put off what follows from it until `.turn` is free."""
        # A long log is not read again for the one text that this turn may leave.
        since = None if state.undelivered else state.position
        result = self._scheduler.run(paths, state, held, message, sender)
        self._hand_out(paths, self._scheduler.last_seen(paths), since)
        if result.error is None:
            self._defer(paths, state, result)
        if not self._alone:
            for told in result.notices:
                self._scheduler.defer(partial(self._answer, told))
        return result

    def _hand_out(self, paths: AgentPaths, state: AgentState, since: Position | None) -> None:
        if state.undelivered:
            from agentsdir.engine.outbox import deliver_waiting

            deliver_waiting(self._services, paths, state, since)

    def _defer(self, paths: AgentPaths, state: AgentState, result: TurnResult) -> None:
        # What an earlier turn asked for waits too, where its process died before it was run.
        if state.children or any("child" in one for one in result.deferred):
            self._scheduler.defer(partial(self._run_children, paths))
        for sent in (one for one in result.deferred if "to" in one):
            told = partial(self._run_sent, sent["to"], sent["messageId"])
            self._scheduler.defer(told)

    def _run_sent(self, agent_id: str, message_id: str) -> None:
        with suppress(NoSuchAgent):  # removed meanwhile, and its inbox with it
            self._answer(QueuedMessage(self._services.layout.agent(agent_id), message_id))

    def _answer(self, told: QueuedMessage) -> None:
        """Have an agent look at a message of ours; how that goes is its own affair."""
        if self._hands_over:
            with suppress(OSError):  # then it waits for whoever comes by
                if self._services.start_turn is not None:
                    self._services.start_turn(told.paths, told.message_id, alone=False)
            return
        sender = self._listeners.get(told.paths.id, QUIET)
        try:
            self._run_until(told.paths, told.message_id, sender, locks.FOREVER)
        except (NotRecorded, Uncertain):
            raise
        except AgentsdirError as error:
            self._services.notify_user(
                f"message {told.message_id} waits for {told.paths.id}: {error.message}"
            )

    def _run_children(self, parent: AgentPaths) -> None:
        """Run spawned agents: one here, several side by side in processes of their own."""
        from agentsdir.engine.notices import pending_children

        with suppress(NoSuchAgent):  # removed meanwhile, and who it asked for with it
            state = read_agent(parent).state
            self._run_waiting(parent, pending_children(self._services.layout, state))

    def _run_waiting(self, parent: AgentPaths, prompts: list[tuple[AgentPaths, str]]) -> None:
        here = deque(QueuedMessage(*prompt) for prompt in prompts)
        started: list[TurnProcess] = []
        try:
            if self._services.start_turn is not None and len(here) > 1 and not self._hands_over:
                with suppress(OSError):  # the rest is run here, if the system lets us have no more
                    while here:
                        started.append(self._services.start_turn(*here[0], alone=True))
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
                    self._scheduler.defer(
                        partial(self._answer, QueuedMessage(parent, waiting["messageId"]))
                    )


def _recorded(paths: AgentPaths, message_id: str, sender: TurnOptions) -> TurnResult:

    try:
        return recorded_result(paths, message_id, sender.on_event)
    except AgentsdirError as error:
        return TurnResult(message_id, None, "failed", "", None, None, error=error)


# A message, its place in the queue, and the turns that are run until its own is over.
#
# Decisions D16 and D17: one message, one turn, in log order; a message that a turn has started is
# never run again by itself.


class Waiting(NamedTuple):
    """How many seconds to wait for another turn to end, and for a slot; negative waits for ever."""

    turn: float = locks.FOREVER
    slot: float = locks.FOREVER


FOR_EVER = Waiting()


def send(
    services: Services,
    paths: AgentPaths,
    content: list[dict[str, Any]],
    on_event: Callable[[StreamEvent], None],
    *,
    wait: float = locks.FOREVER,
    record: bool = False,
    permission_mode: str = "",
) -> TurnResult:
    """Give the agent a message from outside and run its turn (arguments of `TurnOptions`, `say`)."""
    sender = TurnOptions(on_event, record, permission_mode)
    return say(services, paths, Message(content), sender, Waiting(wait, wait))


def say(
    services: Services,
    paths: AgentPaths,
    message: Message,
    sender: TurnOptions,
    waiting: Waiting = FOR_EVER,
    *,
    alone: bool = False,
) -> TurnResult:
    """Give the agent a message, run the turns up to its own, and then what follows from them.

    Args:
        sender: what is wanted of the message's turn.
        alone: run no other agent's turns afterwards.

    Raises `SessionStateError` for a terminated session, `Busy` or `SlotsHeld` (the message stays
    queued), `ProviderError` when the turn failed (which is recorded), or when this root may start
    no provider (then there is no message either), and `UsageError` for a permission mode where no
    program could have one.
    """
    _check(services, paths, sender)
    with services.disk.settled():
        there = enqueue_and_read(services, paths, message)
        following = _following(services, paths, sender, waiting, alone=alone, known=there.state)
        return following.run_until(paths, there.message_id, sender, wait=waiting.turn)


def render(
    services: Services,
    paths: AgentPaths,
    sender: TurnOptions,
    waiting: Waiting = FOR_EVER,
    *,
    alone: bool = False,
) -> list[TurnResult]:
    """Run what waits in an agent's inbox; where that is nothing, have it go on by itself.

    A turn that fails does not keep the next message from being looked at. Arguments and errors of
    `say`; of several failures the last one is raised.
    """
    _check(services, paths, sender)
    with services.disk.settled():
        following = _following(services, paths, sender, waiting, alone=alone)
        return following.run_all(paths, sender, wait=waiting.turn)


def catch_up_to(
    services: Services,
    paths: AgentPaths,
    message_id: str,
    sender: TurnOptions,
    waiting: Waiting = FOR_EVER,
    *,
    alone: bool = False,
) -> TurnResult:
    """Run what waits in an agent's inbox up to a message (arguments and errors of `say`)."""
    _check(services, paths, sender)
    with services.disk.settled():
        following = _following(services, paths, sender, waiting, alone=alone)
        return following.run_until(paths, message_id, sender, wait=waiting.turn)


def _check(services: Services, paths: AgentPaths, sender: TurnOptions) -> None:
    services.check_trust()
    if sender.permission_mode and not find_provider(read_agent(paths).state)[1].runs_program:
        raise UsageError("--permission-mode is for providers that run a program")


def _following(
    services: Services,
    paths: AgentPaths,
    sender: TurnOptions,
    waiting: Waiting,
    *,
    alone: bool,
    known: AgentState | None = None,
) -> FollowingUp:
    scheduler = TurnScheduler(services, slot_wait=waiting.slot)
    if known is not None:
        scheduler.know(paths, known)
    following = FollowingUp(services, scheduler, alone=alone)
    following.listen(paths, sender)
    return following


# A subagent's answer, for whoever spawned it and waits (docs/behaviour.md, "Spawning").


def run_child(
    services: Services, child: SpawnedChild, sender: TurnOptions, waiting: Waiting
) -> TurnResult:
    """Run a subagent's first turn, if nobody has, and return how it ended.

    Raises what `catch_up_to` raises.
    """
    try:
        return catch_up_to(services, child.paths, child.message_id, sender, waiting)
    except NoSuchAgent:
        # It was ephemeral, and somebody else ran it: its parent's log has what it said.
        block = subagent_blocks(child.parent, [child.paths.id]).get(child.paths.id, {})
        if block.get("status") == "success":
            said = str(block.get("output"))
            return TurnResult(child.message_id, None, "completed", said, None, None)
        if block.get("status") == "error":
            raise ProviderError(str(block.get("output"))) from None
        raise
