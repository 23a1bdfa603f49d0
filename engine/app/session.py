"""A session of an app: one agent, its turns, and what a program keeps with it."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cached_property, partial
from threading import Lock, RLock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from agentsdir.adapters import registry
from agentsdir.engine import cancel, close, dispatcher, in_turn
from agentsdir.engine.app.component import AgentConfig, check_props, config_of, with_props
from agentsdir.engine.app.execution import Execution, never_began
from agentsdir.engine.app.persistence import persist
from agentsdir.engine.app.procedures import composed, runs_at_once, runs_beside, runs_turn
from agentsdir.engine.app.prompt import Input, content_of
from agentsdir.engine.app.session_options import NO_CALLBACKS, SessionOptions, changes_to
from agentsdir.engine.app.session_timeline import SessionTimeline
from agentsdir.engine.data import set_data, set_props
from agentsdir.engine.extensions import Extensions
from agentsdir.engine.hooks import message_to_send
from agentsdir.engine.inbox import PERSON, Message, drop_message
from agentsdir.engine.runner import runner_errors
from agentsdir.engine.settings import Changes, change_settings
from agentsdir.engine.snapshots import inspection, snapshot
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.timeline import Timeline
from agentsdir.engine.tools import by_name
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import (
    AgentsdirError,
    Interruption,
    NoSuchAgent,
    SessionStateError,
    TurnTimeout,
)
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from agentsdir.adapters.protocol import Architecture
    from agentsdir.engine.app.app import BaseApp
    from agentsdir.engine.app.component import Agent
    from agentsdir.engine.app.procedures import Call, Middleware, Next
    from agentsdir.engine.callbacks import Callbacks, SessionCallbacks
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.runner import ExecutionRunner
    from agentsdir.engine.services import Services
    from agentsdir.engine.snapshots import Inspection
    from agentsdir.engine.tools import Tool
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Position
    from agentsdir.formats.store.state import AgentState


def _nothing() -> None:
    pass


class Session:
    """One agent of an agents directory, as a program uses it.

    `send`, `render`, `queue` and `spawn` are procedures (`Procedure`). Turns run in threads, one
    after the other in the order of the calls. Any thread may use a session.

    Attributes:
        paths: of its agent.
        parent: the session that spawned it; None for a session of the app.
    """

    def __init__(
        self,
        app: BaseApp,
        paths: AgentPaths,
        agent: Agent,
        options: SessionOptions,
        *,
        props: Mapping[str, Any] | None = None,
        parent: Session | None = None,
    ) -> None:
        self.paths = paths
        self.parent = parent
        self.app = app
        self._agent, self._props = with_props(agent, props)
        self._options = options
        self._lock = Lock()
        self._saving = RLock()
        self._is_saving = False
        self._last: Execution | None = None
        self._executions: list[Execution] = []
        self._spawns: list[Execution] = []
        self._children: list[Session] = []
        self._applied: AgentConfig | None = None
        self._is_closed = False
        self._queued_ids: set[str] = set()
        self._timeline = Timeline(paths, app.max_timeline_entries)
        self._resolved: dict[str, Any] = {}
        self._saved: Position | None = None

    def __repr__(self) -> str:
        return f"<session {self.id}>"

    @property
    def id(self) -> str:
        """The id of its agent."""
        return self.paths.id

    @property
    def name(self) -> str | None:
        """The name that it was asked for with."""
        return self._state().name

    @property
    def status(self) -> str:
        """It is ``idle``, ``running`` or ``closed``. A turn of another process counts, too."""
        try:
            state = self._state()
        except NoSuchAgent:  # an ephemeral one that is done
            return "closed"
        if state.session.state is SessionState.TERMINATED:
            return "closed"
        return "running" if self._executions or locks.is_held(self.paths.turn) else "idle"

    @property
    def children(self) -> tuple[Session, ...]:
        """The sessions that `spawn` made, and whose turn has not ended."""
        return tuple(self._children)

    @property
    def is_aborted(self) -> bool:
        """Whether the turn that runs was asked to end."""
        turn = self._state().open_turn
        return turn is not None and bool(turn["aborted"])

    @property
    def queued_messages(self) -> list[dict[str, Any]]:
        """The messages that wait in the inbox, in order."""
        return list(self._state().pending)

    @property
    def executions(self) -> tuple[Execution, ...]:
        """The executions of this object that have not ended, spawns last."""
        return (*self._executions, *self._spawns)

    def change(
        self, props: Mapping[str, Any] | None = None, callbacks: Callbacks | None = None
    ) -> None:
        """Take props and callbacks of its next turns; None leaves those that it has.

        Raises `UsageError` (kind ``bad-props``) for props that its component does not take.
        """
        with self._lock:
            if props is not None:
                changed = {**self._props, **props}
                check_props(self._agent, changed)
                self._props = changed
            if callbacks is not None:
                self._options = self._options._replace(callbacks=callbacks)

    # What a program keeps with the session.

    @property
    def stored_as(self) -> str:
        """The id under which a store has the session: its name, or else that of its record."""
        state = self._state()
        return state.name or state.session.id

    @property
    def props(self) -> Mapping[str, Any]:
        """The props of its component."""
        return MappingProxyType(self._props)

    @property
    def timeline(self) -> SessionTimeline:
        """What the model is given, to be read and edited."""
        return SessionTimeline(self._timeline, self.app.services)

    @property
    def state(self) -> dict[str, Any]:
        """What the components keep in the session (`set_state`)."""
        return self._state().com_state

    def set_state(self, **values: Any) -> None:
        """Keep values that a component goes by; None removes one. Raises what `set_data` raises."""
        set_data(self.app.services(), self.paths, "com", values)

    @property
    def data(self) -> dict[str, Any]:
        """What the components have loaded, so that it need not be loaded again (`set_data`)."""
        return self._state().data_cache

    def set_data(self, **values: Any) -> None:
        """Keep loaded values; None removes one. Raises what `engine.data.set_data` raises."""
        set_data(self.app.services(), self.paths, "data", values)

    def resolved(self, key: str) -> Any:
        """Return what the app's `resolve` has made for a key. Raises `KeyError` for another key."""
        return self._resolved[key]

    def take_resolved(self, values: Mapping[str, Any]) -> None:
        """Keep what `resolve` has made."""
        self._resolved = {**values}

    def snapshot(self) -> dict[str, Any]:
        """Return the session as it is now (schema ``session-snapshot``)."""
        return snapshot(self._timeline, self.app.services().now())

    def inspect(self) -> Inspection:
        """Return how far the session has come: ticks, last output, tool calls, tokens."""
        return inspection(self._timeline)

    @property
    def current_tick(self) -> int:
        """How many calls of the model the turn that runs has made, or the last one."""
        return self.inspect().current_tick

    @property
    def runner(self) -> ExecutionRunner | None:
        """The runner of its turns."""
        return self._options.runner

    def callbacks(self) -> SessionCallbacks:
        """Return the callbacks of its turns, with what becomes of their failures."""
        extensions = Extensions(self._callbacks, session=self)
        return extensions.session_callbacks(self.app.services(), self.paths)

    def persist(self, *, only_if_changed: bool = False) -> None:
        """Save the session in the app's store, if there is one; a failure is recorded.

        A session that was removed meanwhile is not saved. Inside of a save, as in a callback of
        it, this does nothing.

        Args:
            only_if_changed: not if its log is as it was when it was saved last.
        """
        if self.app.store is None or self.parent is not None or self._options.ephemeral:
            return
        with self._saving:
            if self._is_saving:
                return
            self._is_saving = True
            try:
                # First: what changes meanwhile is saved next time.
                position = self._state().position
                if only_if_changed and self._saved == position:
                    return
                persist(self, self.app.store)
                self._saved = position
            except NoSuchAgent:
                return
            except AgentsdirError as error:  # no reason for other sessions to fail
                self.app.services().notify_user(f"{self.id}: {error.message}")
            finally:
                self._is_saving = False

    # The procedures.

    @runs_turn
    def send(
        self,
        call: Call,
        execution: Execution,
        input: Input,  # noqa: A002
        *,
        sender: str = PERSON,
        children: bool = False,
    ) -> TurnResult:
        """Queue a message and run its turn: ``send("hello")``, or with parts of text and images.

        Args:
            sender: the id of the agent that sends it; a person does by default.
            children: have the events of the agents that it spawns among its own, and not only what
                becomes of each.

        Raises what `content_of` and `send_message` raise, as the result.
        """
        content = content_of(input)
        execution.children = children
        message = Message(content, sender)

        def run(services: Services, options: TurnOptions, _begin: Callable[[], None]) -> TurnResult:
            execution.queues()
            return dispatcher.send_message(
                services, self.paths, message, options, nested=self.is_nested
            )

        return self._run(call, execution, run)

    @runs_turn
    def render(
        self, call: Call, execution: Execution, props: Mapping[str, Any] | None = None
    ) -> TurnResult:
        """Run a turn without a message, with new props if they are given, which are recorded.

        Messages that wait have their turns in its place; the result is the last one's. Raises, as
        the result, `UsageError` (kind ``no-message``) where the provider needs a prompt.
        """
        if props is not None:
            check_props(self._agent, {**self._props, **props})
            recorded = {**self._state().props, **props}
            set_props(self.app.services(), self.paths, recorded)
            self.change(props)

        def run(services: Services, options: TurnOptions, begin: Callable[[], None]) -> TurnResult:
            execution.queued(None)
            begin()
            return dispatcher.run_inbox(services, self.paths, options, nested=self.is_nested)[-1]

        return self._run(call, execution, run)

    @runs_at_once
    def queue(self, call: Call, input: Input) -> str:  # noqa: A002
        """Put a message into the inbox, also while a turn runs; return its id.

        It stands behind the messages of the calls of `send` before it.
        """
        del call
        self.app.running.check_open()
        content = content_of(input)
        with self._lock:
            last = self._last
        if last is not None:
            last.wait_until_queued()
        services = self.app.services()
        with services.disk.synced_at_end():
            message_id = in_turn.queue(services, self.paths, Message(content))
        self._queued_ids.add(message_id)
        return message_id

    @runs_beside
    def spawn(
        self,
        call: Call,
        execution: Execution,
        agent: Agent,
        input: Input,  # noqa: A002
        *,
        model: str = "",
        provider: str | Architecture = "",
        runner: ExecutionRunner | None = None,
        max_ticks: int | None = None,
        name: str = "",
        ephemeral: bool = True,
    ) -> TurnResult:
        """Run a prompt in a child session of another agent: a component, an element or a config.

        The child sees nothing of this session, and none of its callbacks is called for the child.
        It ends with this session's turn, and is removed when its own has ended.

        Args:
            model: in place of that of the agent, or this session's.
            provider: the same.
            runner: in place of this session's.
            max_ticks: how many model calls the turn may take; None for this session's limit.
            name: unique among the live children; empty for one that is made.
            ephemeral: whether to remove it at its end.

        Raises, as the result, what `create_child` and `run_child` raise.
        """
        chosen = SessionOptions(
            runner=runner or self._options.runner,
            ephemeral=ephemeral,
            overrides=AgentConfig(provider=provider, model=model, max_ticks=max_ticks),
        )
        agent, props = with_props(agent)
        services = self.app.services()
        services.check_trust()
        config = chosen.over(config_of(agent, props))
        wanted = SpawnRequest(
            content_of(input),
            name=name,
            provider=config.provider_name,
            model=config.model,
            system_prompt=config.system,
            profile=config.profile,
            cwd=config.cwd,
            options=config.options,
            max_ticks=config.max_ticks,
            ephemeral=ephemeral,
            message_id=services.ids.agent(),
        )
        turn = self._turn
        if turn is not None:
            turn.follow(services.layout, self.paths)
        execution.begins()
        with dispatcher.awaiting(wanted.message_id):
            with services.disk.synced_at_end():
                made = create_child(services, self.paths, wanted, turn_id=None, sync=False)
            child = Session(self.app, made.paths, agent, chosen, props=props, parent=self)
            child._applied = config
            with self._holding(child, execution, turn):
                execution.queued(made.message_id)
                return child._run(
                    call,
                    execution,
                    lambda services, options, _begin: dispatcher.run_child(
                        services,
                        made,
                        options._replace(reports=False),
                        dispatcher.NO_LIMIT,
                        nested=child.is_nested,
                    ),
                )

    # Ending.

    def interrupt(self, message: Input | None = None, reason: str = "") -> bool:
        """Ask the turn that runs to end, and those of its children; return whether any runs.

        It does not wait for them, and turns of other processes are asked, too.

        Args:
            message: for the inbox, where it stays for the next turn.
            reason: why, for the log.

        Raises what `engine.cancel.interrupt` raises.
        """
        services, content = self.app.services(), None
        if message is not None:
            content = message_to_send(services, self.paths, Message(content_of(message))).content
        asked = False
        try:
            asked = bool(cancel.interrupt(services, self.paths, reason, content).asked)
        except SessionStateError as error:
            if error.kind != "not-running":
                raise
        return self._end_spawns(reason) or asked

    def clear_abort(self) -> bool:
        """Take back an interrupt that the turn has not heeded yet; return whether there was one."""
        return cancel.clear_abort(self.app.services(), self.paths) is not None

    def close(self) -> None:
        """Close the session and its children for good, and wait until their turns have ended.

        Inside of one of these turns it does not wait for that one.

        Raises what `engine.close.close` raises.
        """
        services = self.app.services()
        executions = self.executions
        for execution in executions:
            execution.abort("close")
        closed = close.close(services, self.paths)
        was_closed, self._is_closed = self._is_closed, True
        turns = [one.turn for one in closed.closed if one.turn is not None]
        close.end_closed_turns(services, turns)
        others = [one for one in executions if not one.waits_for_this_thread]
        for execution in others:
            execution.wait_until_done()
        self.app.running.join([one for one in others if one.id is not None])
        self.app.sessions.forget(self)
        if not was_closed and not closed.closed[0].before:
            self._destroyed()

    def end_turn(self, execution: Execution, reason: str) -> bool:
        """End an execution of this session early (`Execution.abort`).

        Returns whether its turn never begins.
        """
        session = execution.child or self
        services = self.app.services()
        try:
            if execution.id is not None:
                cancel.interrupt(services, session.paths, reason, turn_id=execution.id)
                session._end_spawns(reason)
                return False
            if execution.child is not None:
                close.close(services, session.paths)
            elif execution.message_id is not None:
                return session._take_back(services, execution.message_id, reason)
        except (SessionStateError, NoSuchAgent):
            # It has ended, or begins just now and ends itself: `Execution.started`.
            return False
        return True

    def _take_back(self, services: Services, message_id: str, reason: str = "") -> bool:
        """Take a message out of the inbox; return whether its turn never begins.

        A turn that another process runs is asked to end, and the log has its result.
        """
        try:
            drop_message(services, self.paths, message_id)
        except (SessionStateError, NoSuchAgent):
            with suppress(SessionStateError, NoSuchAgent):
                turn = self._state().open_turn
                if turn is not None and message_id in turn["messageIds"]:
                    cancel.interrupt(services, self.paths, reason, turn_id=turn["turnId"])
            return False
        return True

    def _end_spawns(self, reason: str = "") -> bool:
        """End the children, also those that wait for a slot; return whether there are any."""
        spawns = tuple(self._spawns)
        for spawn in spawns:
            spawn.abort(reason)
        return bool(spawns)

    def _destroyed(self) -> None:
        self.callbacks().session_closed()
        if (runner := self.runner) is not None:
            try:
                with runner_errors(runner.name):
                    runner.on_destroy(self)
            except AgentsdirError as error:  # the session is closed all the same
                self.app.services().notify_user(f"{self.id}: {error.message}")

    # How a turn is run.

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """The middleware of the app."""
        return self.app.middleware

    @property
    def is_kept(self) -> bool:
        """Whether it is one of `app.sessions`: no child, not closed, and not for one run."""
        return self.parent is None and not self._options.ephemeral and not self._is_closed

    @property
    def is_nested(self) -> bool:
        """Whether its parent may wait for it in a turn: then it needs no slot of its own."""
        return self.parent is not None and bool(self.parent._executions)

    def begin(
        self,
        call: Call,
        middleware: tuple[Middleware, ...],
        work: Callable[[Call, Execution], Any],
        *,
        in_order: bool,
    ) -> Execution:
        """Begin a call in a thread of its own, and return its execution.

        Args:
            in_order: after the calls before it, so that messages and turns are in their order.
        """
        with self._lock:
            execution = Execution(self, self._last if in_order else None)
            (self._executions if in_order else self._spawns).append(execution)
            if in_order:
                self._last = execution
        self.app.sessions.touch(self)
        run = composed((*self.middleware, *middleware), lambda made: work(made, execution))
        try:
            self.app.running.start(execution, partial(self._work, call, execution, run))
        except BaseException as error:  # the app is closed, or the system has no more threads
            execution.fail(error)
            self._ended(execution)
            raise
        return execution

    def _work(self, call: Call, execution: Execution, run: Next) -> None:
        try:
            with execution.inside():
                execution.begins()
                result = run(call)
        except BaseException as error:  # noqa: BLE001, the caller's thread has it from `result`
            if isinstance(error, KeyboardInterrupt | TurnTimeout):
                self._end_spawns()
            self._close_unused(execution)
            # Its message was taken out, or its agent was closed, by the abort.
            gone = execution.id is None and isinstance(error, SessionStateError | NoSuchAgent)
            execution.fail(never_began() if gone and execution.is_aborted else error)
        else:
            self._close_unused(execution)
            execution.complete(result)
        finally:
            try:
                if execution.id is not None and execution.child is None:
                    self.persist()
            finally:
                self._ended(execution)

    def _close_unused(self, execution: Execution) -> None:
        """Close a session for one turn that has had none: a turn would have ended it."""
        if execution in self._spawns or execution.id is not None:
            return
        dropped = self.parent is not None and execution.is_aborted
        if self._options.ephemeral or dropped:
            with suppress(SessionStateError, NoSuchAgent):
                close.close(self.app.services(), self.paths)

    def _ended(self, execution: Execution) -> None:
        with self._lock:
            for running in (self._executions, self._spawns):
                if execution in running:
                    running.remove(execution)
            if self._last is execution:
                self._last = self._executions[-1] if self._executions else None
        self.app.sessions.touch(self)

    def _run(
        self,
        call: Call,
        execution: Execution,
        run: Callable[[Services, TurnOptions, Callable[[], None]], TurnResult],
    ) -> TurnResult:
        services = self.app.services()
        tools: dict[str, Tool] = {}

        def take(config: AgentConfig) -> None:
            tools.clear()
            tools.update(by_name((*self.app.tools, *config.tools)))

        def begin() -> None:
            execution.begins()
            if execution.waits:
                # The turns before this one may have changed what the component goes by.
                execution.wait_for_turn()
                execution.begins()
                take(self._configure(services))

        def queued(message_id: str) -> None:
            execution.queued(message_id)
            try:
                begin()
            except BaseException:  # it was aborted, or the component fails: no turn is to come
                if self._take_back(services, message_id):
                    raise

        def before_start() -> None:
            try:
                execution.begins()
            except Interruption:
                if execution.message_id is not None:  # or another process might run it
                    self._take_back(services, execution.message_id)
                raise

        take(self._config() if execution.waits else self._configure(services))
        options = TurnOptions(
            execution.add,
            timeout=call.timeout,
            extensions=Extensions(
                callbacks=self._callbacks,
                tools=tools,
                runner=self._options.runner,
                session=self,
                spawn=self.spawn,
                context=call.context,
                queued=self._queued_ids,
                timeline=self._timeline,
            ),
            on_queued=queued,
            while_waiting=execution.check_awaited,
            before_start=before_start,
            on_start=execution.started,
            on_recorded=execution.recorded,
        )
        if execution.children or self._runs_program:
            # What runs in other processes may spawn.
            execution.follow(services.layout, self.paths)
            options = options._replace(on_tick=execution.look, on_others=execution.look)
        execution.wait_for_queue()
        execution.begins()
        return run(services, options, begin)

    @cached_property
    def _runs_program(self) -> bool:
        name = self._state().session.provider_name
        with suppress(AgentsdirError):  # the turn says so
            provider = registry.get(name).provider
            return provider is not None and provider.runs_program
        return False

    @property
    def _turn(self) -> Execution | None:
        """The execution whose turn runs."""
        begun = [one for one in self._executions if one.id is not None and not one.is_done]
        return begun[0] if begun else None

    @contextmanager
    def _holding(
        self, child: Session, execution: Execution, turn: Execution | None
    ) -> Iterator[None]:
        """Have a child among the children while its turn runs.

        Args:
            turn: has what becomes of the child among its events.
        """
        look = _nothing if turn is None else turn.look
        with self._lock:
            self._children.append(child)
        child._executions.append(execution)
        child._last = execution
        execution.child = child
        try:
            look()
            execution.begins()
            with execution.watched(look):
                yield
        finally:
            child._close_unused(execution)
            child._executions.remove(execution)
            with self._lock:
                self._children.remove(child)
            look()

    def _config(self) -> AgentConfig:
        return self._options.over(config_of(self._agent, self._props, self))

    def _configure(self, services: Services) -> AgentConfig:
        """Return the configuration of the next turn, after the agent's settings are as it says."""
        config = self._config()
        if config != self._applied:
            state = self._state()
            changes = changes_to(config, self.paths, state)
            if changes != Changes():
                change_settings(services, self.paths, changes, wait=locks.FOREVER)
            self._applied = config
        return config

    # What the log says.

    @property
    def _callbacks(self) -> Callbacks:
        """Those of the app, and its own; a spawned child has none."""
        return NO_CALLBACKS if self.parent else self.app.callbacks_with(self._options.callbacks)

    def _state(self) -> AgentState:
        return read_agent(self.paths).state
