"""Runs messages: the turns of an agent, and the turns of other agents that result from them.

Decisions D16 to D19; docs/behaviour.md, "A turn" and "After a turn". One message is one turn, in
log order. A message whose turn has started is never run again by itself. What a turn leaves for
other agents runs after `.turn` is free again, so that one slot is enough.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.budget import Meter, check_budget
from agentsdir.engine.callbacks import NO_CALLBACKS, TurnCallbacks
from agentsdir.engine.cancel import TurnCancelled
from agentsdir.engine.close import remove_if_finished
from agentsdir.engine.extensions import NO_EXTENSIONS, check_provider, check_runner, inherited
from agentsdir.engine.hooks import message_to_send, turn_ended
from agentsdir.engine.inbox import Message, enqueue_and_read
from agentsdir.engine.notices import pending_children, subagent_blocks
from agentsdir.engine.outbox import deliver_waiting
from agentsdir.engine.providers import check_folder, find_provider
from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.replay import recorded_event
from agentsdir.engine.result import Ending, QueuedMessage, TurnResult, milliseconds, tools_of
from agentsdir.engine.slots import SessionMultiplexer
from agentsdir.engine.turn import SlotLease, Turn, TurnOptions, check_can_run
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats import signals
from agentsdir.formats.blocks import block_key
from agentsdir.formats.errors import (
    AgentsdirError,
    BudgetSpent,
    NoSuchAgent,
    NotRecorded,
    ProviderError,
    SessionStateError,
    SlotsHeld,
    Uncertain,
    UsageError,
)
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.log import read_records
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from agentsdir.engine.services import Services, TurnProcess
    from agentsdir.engine.spawn import SpawnedChild
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState


_awaited: set[str] = set()
"""Messages whose results threads of this process wait for."""
# No thread of a forked child is.
os.register_at_fork(after_in_child=_awaited.clear)
_GLANCE = 0.1
"""Seconds between two looks at what other processes have done."""


class WaitLimits(NamedTuple):
    """Seconds to wait for another turn to end, and for a slot; negative waits for ever."""

    turn: float = locks.FOREVER
    slot: float = locks.FOREVER


NO_LIMIT = WaitLimits()


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
    """Send a user's message and run its turn (arguments of `TurnOptions` and `send_message`)."""
    options = TurnOptions(on_event, record, permission_mode)
    return send_message(services, paths, Message(content), options, WaitLimits(wait, wait))


def send_message(
    services: Services,
    paths: AgentPaths,
    message: Message,
    options: TurnOptions,
    limits: WaitLimits = NO_LIMIT,
    *,
    alone: bool = False,
    nested: bool = False,
) -> TurnResult:
    """Queue a message, run the turns up to its own, and then the turns that result from them.

    Args:
        options: for the turn of this message.
        alone: run no turns of other agents afterwards.
        nested: a turn of this process, which has a slot, waits for this one: it takes no slot from
            others, or both would wait for ever.

    Raises `SessionStateError` for a terminated session, or (kind ``no-folder``, with nothing
    queued) where the working directory is gone and the message has no id, `Busy` or `SlotsHeld`
    (the message stays queued), `BudgetSpent` (it is not queued, unless the messages before it spent
    the budget, or it has an id), `ProviderError` when the turn failed (which is recorded) or when
    this root may start no provider (then nothing is queued), and `UsageError` for a permission mode
    where the provider runs no program.
    """
    _check(services, paths, options)
    with services.disk.synced_at_end():
        dispatcher = Dispatcher(services, slot_wait=limits.slot, alone=alone, nested=nested)
        reading = read_agent(paths)
        known = reading.state
        if not message.id:  # else the message would stay, and its repeat be another
            dispatcher.check_budget(paths, known)
            check_folder(paths, known)
        callbacks = options.extensions.session_callbacks(services, paths)
        message = message_to_send(services, paths, callbacks.before_send(message))
        message_id = message.id or services.ids.agent()
        with awaiting(message_id):
            # Records that are lost are found again, and refuse the message.
            before = None if reading.findings else known
            queued = enqueue_and_read(services, paths, message, before, new_id=message_id)
            dispatcher.known[paths.id] = queued.state
            if options.on_queued is not None:
                options.on_queued(message_id)
            after = callbacks.after_send
            return dispatcher.run_until(
                paths, message_id, options, wait=limits.turn, on_result=after
            )


def run_inbox(
    services: Services,
    paths: AgentPaths,
    options: TurnOptions,
    limits: WaitLimits = NO_LIMIT,
    *,
    alone: bool = False,
    nested: bool = False,
) -> list[TurnResult]:
    """Run all messages of an agent's inbox; if there are none, one turn without a message.

    Those that other threads of this process wait for do not count, as these run them: such a
    message is run only on the way to a later one. A turn that fails does not stop the next message.
    Arguments and errors of `send_message`; of several failures the last one is raised.
    """
    _check(services, paths, options)
    with services.disk.synced_at_end():
        known = read_agent(paths).state
        check_folder(paths, known)
        dispatcher = Dispatcher(services, slot_wait=limits.slot, alone=alone, nested=nested)
        return dispatcher.run_all(paths, options, wait=limits.turn)


def run_until(
    services: Services,
    paths: AgentPaths,
    message_id: str,
    options: TurnOptions,
    limits: WaitLimits = NO_LIMIT,
    *,
    alone: bool = False,
    nested: bool = False,
) -> TurnResult:
    """Run an agent's inbox up to a message (arguments and errors of `send_message`)."""
    _check(services, paths, options)
    with services.disk.synced_at_end():
        dispatcher = Dispatcher(services, slot_wait=limits.slot, alone=alone, nested=nested)
        return dispatcher.run_until(paths, message_id, options, wait=limits.turn)


@contextmanager
def awaiting(message_id: str) -> Iterator[None]:
    """Keep other threads from running a message for its own sake: the caller runs it.

    Else a turn of a spawned agent's parent that ends meanwhile would run it, or `run_inbox`, with
    none of the caller's options.
    """
    _awaited.add(message_id)
    try:
        yield
    finally:
        _awaited.discard(message_id)


def run_child(
    services: Services,
    child: SpawnedChild,
    options: TurnOptions,
    limits: WaitLimits,
    *,
    nested: bool = False,
) -> TurnResult:
    """Run a subagent's first turn, unless another process has, and return its result.

    Args:
        nested: as for `send_message`.

    Raises what `run_until` raises.
    """
    try:
        return run_until(services, child.paths, child.message_id, options, limits, nested=nested)
    except NoSuchAgent:
        # It was ephemeral, and another process ran it. The log of its parent has the answer.
        block = subagent_blocks(child.parent, [child.paths.id]).get(child.paths.id, {})
        if block.get("status") == "success":
            output = str(block.get("output"))
            result = TurnResult(child.message_id, None, "completed", output, None, None)
            return result._replace(agent_id=child.paths.id, name=child.name)
        if block.get("status") == "error":
            raise ProviderError(str(block.get("output"))) from None
        raise


def _check(services: Services, paths: AgentPaths, options: TurnOptions) -> None:
    services.check_trust()
    state = read_agent(paths).state
    if options.permission_mode and not find_provider(state)[1].runs_program:
        raise UsageError("--permission-mode is for providers that run a program")
    check_runner(services.layout, state, options.extensions)
    if options.extensions != NO_EXTENSIONS:
        name = state.session.provider_name
        with suppress(ProviderError):  # the turn says so, unless another provider stands in
            check_provider(name, find_provider(state)[1], options.extensions)
    SessionMultiplexer(services).check()  # else the message would stay, and its repeat be another


def _discard(_event: StreamEvent) -> None:
    """A command prints the events of its own turn only; other turns are in the log."""


class Dispatcher:
    """Runs the messages of agents in this process, and the turns that result from them.

    Args:
        slot_wait: seconds that a turn waits for a slot; negative waits for ever.
        alone: leave the answers to other agents to the process that started this one.
        nested: turns take no slot from others.
    """

    def __init__(
        self,
        services: Services,
        *,
        slot_wait: float = locks.FOREVER,
        alone: bool = False,
        nested: bool = False,
    ) -> None:
        self._services = services
        self._slots = SessionMultiplexer(services)
        self._slot_wait = slot_wait
        self._alone = alone
        self._nested = nested
        self._starts_processes = False
        # The states that this process has read. Other processes may have appended since, so each
        # use reads the rest of the log.
        self.known: dict[str, AgentState] = {}
        self._meters: dict[str, Meter] = {}
        self._deferred: deque[Callable[[], None]] = deque()
        self._options: dict[str, TurnOptions] = {}
        self._others = TurnOptions(_discard)
        self._on_others: Callable[[], None] | None = None

    def run_until(
        self,
        paths: AgentPaths,
        message_id: str,
        options: TurnOptions,
        *,
        wait: float,
        on_result: Callable[[TurnResult], None] | None = None,
    ) -> TurnResult:
        """Run an agent's messages up to one of them, and what results; return that one's result.

        Args:
            options: for the turn of that message.
            wait: seconds to wait for another turn to end; negative waits for ever.
            on_result: called with that one's result, before what results from it is run.

        Raises what `send_message` raises.
        """
        self._keep_options(paths, options)
        own = self._run_until(paths, message_id, options, wait, recorded=True)
        assert own is not None
        if on_result is not None:
            on_result(own)
        # A cancelled process should exit soon: new processes run what is left, if it can start any.
        may_start = self._services.start_turn is not None
        self._starts_processes = may_start and isinstance(own.error, TurnCancelled)
        self._run_deferred()
        if own.error is not None:
            raise own.error
        return own

    def run_all(self, paths: AgentPaths, options: TurnOptions, *, wait: float) -> list[TurnResult]:
        """Run all messages of an agent, or one turn without a message, and what results.

        Raises what `run_until` raises, of several failures the last, and `UsageError` (kind
        ``no-message``) if the inbox is empty and the provider needs a prompt.
        """
        self._keep_options(paths, options)
        done = self._run_all(paths, options, wait)
        self._run_deferred()
        failed = [result.error for result in done if result.error is not None]
        if failed:
            raise failed[-1]
        return done

    def _keep_options(self, paths: AgentPaths, options: TurnOptions) -> None:
        """Use the callbacks and the mode of `options` for later turns of the agent, too."""
        self._options[paths.id] = options._replace(record=False, timeout=0)
        self._others = TurnOptions(_discard, on_tick=options.on_wait)
        self._on_others = look = options.on_others
        if look is not None:
            self._others = self._others._replace(on_event=lambda _: look(), on_end=lambda _: look())

    def _run_until(
        self,
        paths: AgentPaths,
        message_id: str,
        options: TurnOptions,
        wait: float,
        *,
        recorded: bool = False,
    ) -> TurnResult | None:
        """Return the result of a message; if another process ran it, only with `recorded`."""
        own = None
        try:
            queued = (
                f"the message stays queued as {message_id}; "
                f"`agentsdir send {paths.id} --no-message` runs it"
            )
            with self._held(hold_turn(paths, wait=wait, hint=queued), options) as held:
                state = self._current(paths, held)
                while own is None and state.pending.has(message_id):
                    message = state.pending[0]
                    is_own = message["messageId"] == message_id
                    chosen = options if is_own else self._before(options, message["messageId"])
                    result = self._run_message(paths, state, held, message, chosen)
                    if is_own and result is not None:
                        own = result
                    else:
                        state = self._current(paths, held)
                if own is None and recorded:
                    # An ephemeral agent may be removed once `.turn` is free.
                    own = _recorded_or_failed(self._services, paths, message_id, options)
        except SlotsHeld as error:
            raise SlotsHeld(f"{error.message}; {queued}", hint=error.hint) from None
        except BudgetSpent as error:
            raise BudgetSpent(f"{error.message}; {queued}", hint=error.hint) from None
        except KeyboardInterrupt:
            with suppress(AgentsdirError):
                if read_agent(paths).state.pending.has(message_id):
                    self._services.notify_user(queued)
            raise
        self._remove_if_finished(paths, state)
        return own

    def _before(self, options: TurnOptions, message_id: str) -> TurnOptions:
        """Return the options of a turn of the same agent before the one that is wanted.

        The process that waits for it calls its own callbacks, from the log.
        """
        added = options.extensions
        if message_id not in added.queued:
            added = added._replace(callbacks=NO_CALLBACKS)
        return self._others._replace(extensions=added, while_waiting=options.while_waiting)

    def _run_all(self, paths: AgentPaths, options: TurnOptions, wait: float) -> list[TurnResult]:
        done: list[TurnResult] = []
        with self._held(hold_turn(paths, wait=wait), options) as held:
            state = self._current(paths, held)
            if not _has_unawaited(state):
                _check_needs_no_prompt(paths, state)
                done.append(self._run_turn(paths, state, held, None, options))
                state = self._current(paths, held)
            while _has_unawaited(state):
                message = state.pending[0]
                is_own = message["messageId"] not in _awaited
                chosen = options if is_own else self._before(options, message["messageId"])
                result = self._run_message(paths, state, held, message, chosen)
                done += [result] if is_own and result is not None else []
                state = self._current(paths, held)
        self._remove_if_finished(paths, state)
        if not done:
            raise SessionStateError(
                "the messages were taken out of the inbox before their turns", kind="dropped"
            )
        return done

    @contextmanager
    def _held(
        self, turn: AbstractContextManager[locks.Held], options: TurnOptions
    ) -> Iterator[locks.Held]:
        """Wait for `hold_turn`, and hold it for the block; its records are synced at the end."""
        with ExitStack() as stack:
            with signals.looking(options.while_waiting):
                held = stack.enter_context(turn)
            stack.enter_context(self._services.disk.synced_at_end())
            yield held

    def _run_message(
        self,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any],
        options: TurnOptions,
    ) -> TurnResult | None:
        """Run the turn of a message; None if it was dropped while it waited for a slot."""
        try:
            return self._run_turn(paths, state, held, message, options)
        except SessionStateError as error:
            if error.kind != "dropped":
                raise
            return None

    def _current(self, paths: AgentPaths, held: locks.Held) -> AgentState:
        """Return an agent's state, after a turn that a crash left open is closed."""
        held.check()
        return close_crashed_turn(self._services, paths, self.known.get(paths.id))

    def _run_turn(
        self,
        paths: AgentPaths,
        state: AgentState,
        held: locks.Held,
        message: dict[str, Any] | None,
        options: TurnOptions,
    ) -> TurnResult:
        """Run one turn in a slot, and defer what results from it until `.turn` is free.

        Raises `SlotsHeld` and `BudgetSpent`, with nothing begun, and what `Turn.run` raises.
        """
        check_can_run(state)
        check_runner(self._services.layout, state, options.extensions)
        self.check_budget(paths, state)
        if self._services.settings.idle_timeout:
            self._slots.sweep(self._services.settings.idle_timeout)
        # A long log is not read again for the one text that this turn may leave.
        since = None if state.undelivered else state.position
        acquired = self._slots.acquire(
            paths,
            state,
            held,
            wait=self._slot_wait,
            nested=self._nested,
            while_waiting=options.while_waiting,
        )
        lease = SlotLease(acquired.blob, lambda: self._slots.release(paths))
        turn = Turn(self._services, paths, acquired.state, held, message, options, lease)
        try:
            result = turn.run()
        except BaseException as error:
            self._end_turn(turn, message, turn.aborted, error)
            raise
        finally:
            self.known[paths.id] = turn.state
        if options.on_end is not None:
            options.on_end(result)
        self._end_turn(turn, message, result, result.error)
        if turn.state.undelivered:
            deliver_waiting(self._services, paths, turn.state, since)
        if result.error is None:
            self._defer_children_and_messages(paths, state, result)
        if not self._alone:
            for notice in result.notices:
                self._deferred.append(partial(self._run_queued, notice))
        return result

    def _end_turn(
        self,
        turn: Turn,
        message: dict[str, Any] | None,
        result: TurnResult | None,
        error: BaseException | None,
    ) -> None:
        """Call the callbacks and run the hooks for the end of a turn, if it had begun.

        Args:
            result: None if the log does not have the end.
        """
        if result is None:
            if turn.has_started:
                turn.callbacks.end(None, error)
            return
        if error is not None and not isinstance(error, AgentsdirError):
            error = Ending(aborted=turn.abort_reason).as_error()
        turn.callbacks.end(result, error)
        turn_ended(self._services, turn.paths, turn.state, message, result, error)

    def check_budget(self, paths: AgentPaths, state: AgentState) -> None:
        """Raise `BudgetSpent` if the agent has spent its budget."""
        if state.budget:
            meter = self._meters.setdefault(paths.id, Meter(paths))
            spent = meter.spent(state, self._services.now(), self._services.local_day)
            check_budget(paths, state, spent)

    def _remove_if_finished(self, paths: AgentPaths, state: AgentState) -> None:
        if state.ephemeral:
            remove_if_finished(self._services, paths)

    def _run_deferred(self) -> None:
        """Run what was deferred, in order, and what that defers; it waits for slots for ever."""
        self._slot_wait = locks.FOREVER
        locks.waits().limit = locks.FOREVER
        while self._deferred:
            self._deferred.popleft()()

    def _defer_children_and_messages(
        self, paths: AgentPaths, state: AgentState, result: TurnResult
    ) -> None:
        # Also children of an earlier turn, whose process died before it ran them.
        if state.children or any("child" in one for one in result.deferred):
            self._deferred.append(partial(self._run_children, paths))
        for sent in result.deferred:
            if "to" in sent:
                self._deferred.append(partial(self._run_sent, sent["to"], sent["messageId"]))

    def _run_sent(self, agent_id: str, message_id: str) -> None:
        with suppress(NoSuchAgent):
            self._run_queued(QueuedMessage(self._services.layout.agent(agent_id), message_id))

    def _run_queued(self, queued: QueuedMessage) -> None:
        """Run another agent's inbox up to a message; its failure is not one of this command."""
        if self._starts_processes:
            with suppress(OSError):  # then the message waits for the agent's next turn
                if self._services.start_turn is not None:
                    self._services.start_turn(queued.paths, queued.message_id, alone=False)
            return
        options = self._options.get(queued.paths.id, self._others)
        try:
            self._run_until(queued.paths, queued.message_id, options, locks.FOREVER)
        except (NotRecorded, Uncertain):
            raise
        except NoSuchAgent:
            pass  # it was removed meanwhile, with its inbox
        except AgentsdirError as error:
            self._services.notify_user(
                f"message {queued.message_id} waits for {queued.paths.id}: {error.message}"
            )

    def _run_children(self, parent: AgentPaths) -> None:
        """Run spawned agents: one in this process, several each in a process of its own."""
        with suppress(NoSuchAgent):  # the parent was removed meanwhile
            state = read_agent(parent).state
            pending = pending_children(self._services.layout, state)
            self._run_prompts(parent, [one for one in pending if one[1] not in _awaited])

    def _run_prompts(self, parent: AgentPaths, prompts: list[tuple[AgentPaths, str]]) -> None:
        here = deque(QueuedMessage(*prompt) for prompt in prompts)
        started: list[TurnProcess] = []
        start = self._services.start_turn
        if (added := inherited(self._options.get(parent.id, self._others).extensions)).runner:
            start = None  # another process has no such runner
            for child, _ in prompts:
                self._options[child.id] = self._others._replace(extensions=added)
        try:
            if start is not None and len(here) > 1 and not self._starts_processes:
                with suppress(OSError):  # no more processes allowed: the rest runs in this one
                    while here:
                        started.append(start(*here[0], alone=True))
                        here.popleft()
            for queued in here:
                self._run_queued(queued)
            for process in started:
                self._wait_for(process)
        except BaseException:
            for process in started:
                process.interrupt()
            raise
        if started:  # their answers wait in the parent's inbox
            for waiting in read_agent(parent).state.pending:
                if waiting["replyTo"]:
                    answer = QueuedMessage(parent, waiting["messageId"])
                    self._deferred.append(partial(self._run_queued, answer))

    def _wait_for(self, process: TurnProcess) -> None:
        if self._on_others is None:
            process.wait()
            return
        while process.wait(_GLANCE) is None:
            self._on_others()


def _has_unawaited(state: AgentState) -> bool:
    """Return whether a message waits that no other thread of this process runs."""
    return any(message["messageId"] not in _awaited for message in state.pending)


def _check_needs_no_prompt(paths: AgentPaths, state: AgentState) -> None:
    if find_provider(state)[1].runs_program:
        raise UsageError(
            f"nothing waits for agent {paths.id}, and {state.session.provider_name} does not "
            "go on without a prompt",
            kind="no-message",
        )


def _recorded_or_failed(
    services: Services, paths: AgentPaths, message_id: str, options: TurnOptions
) -> TurnResult:
    """Return the result of a message that another process ran, with all callbacks called."""
    session = options.extensions.session_callbacks(services, paths)
    callbacks = TurnCallbacks(options.extensions.callbacks, session, options.on_event)
    began: str | None = None

    def begin(turn_id: str) -> None:
        nonlocal began
        began = turn_id
        callbacks.begin(turn_id)
        if options.on_recorded is not None:
            options.on_recorded(turn_id)

    try:
        result = recorded_result(paths, message_id, callbacks.take, begin)
    except AgentsdirError as error:
        result = TurnResult(message_id, began, "failed", "", None, None, error=error)
    callbacks.end(result, result.error)
    return result


def recorded_result(
    paths: AgentPaths,
    message_id: str,
    on_event: Callable[[StreamEvent], None],
    on_start: Callable[[str], None] = lambda _turn_id: None,
) -> TurnResult:
    """Return the result of a message that another process ran, from the log.

    Args:
        on_event: called with the events that `replay` makes of its turn.
        on_start: called with the turn's id before that.

    Raises `ProviderError`
    when the turn failed, and `SessionStateError` when the agent was closed before it.
    """
    turn_id: str | None = None
    began = ""
    said: dict[tuple[str, str], Block] = {}
    is_closed = False
    for record in read_records(paths.log):
        data = record.data
        if record.event == "session.state":
            is_closed = data.get("to") == SessionState.TERMINATED
        if record.event == "turn.start" and message_id in data.get("message_ids", ()):
            turn_id, began = data["turn_id"], record.ts
            on_start(turn_id)
        elif record.event == "message.delivered" and turn_id is None:
            if data.get("message_id") == message_id:
                if is_closed:
                    raise SessionStateError(
                        "the agent was closed before the message was looked at", kind="closed"
                    )
                raise SessionStateError(
                    "the message was taken out of the inbox before its turn", kind="dropped"
                )
        elif turn_id is None or data.get("turn_id") != turn_id:
            continue
        ending = Ending.of_record(record.event, data)
        if ending is not None and (error := ending.as_error()) is not None:
            raise error
        if event := recorded_event(record):
            if "block" in event:
                said[block_key(event["block"])] = event["block"]
            on_event(event)
        if record.event == "turn.complete" and data.get("turn_id") == turn_id:
            response, stop, usage = data["response"], data["stop_reason"], data["usage"]
            cost = data.get("cost_usd")
            result = TurnResult(message_id, turn_id, "completed", response, stop, usage, cost=cost)
            took, used = milliseconds(began, record.ts), tools_of(said.values())
            state = read_agent(paths).state
            return result.of_agent(state)._replace(duration_ms=took, tools_used=used)
    raise ProviderError(f"the log does not say how message {message_id} ended", kind="turn-unknown")
