"""What a program that uses the library is called with (decision D34; docs/library.md).

A callback that raises is recorded as `hook.failed`, once for each turn, and blocks nothing. Four of
them are asked, and refuse if they raise: `on_before_send`, `on_tool_confirmation`,
`on_before_persist`, `on_before_restore`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from agentsdir.adapters.protocol import Decision
from agentsdir.engine.hooks import cancelled, queued_content, record_failure
from agentsdir.engine.inbox import as_content
from agentsdir.engine.limits import TickCounter
from agentsdir.engine.tools import failed, settled
from agentsdir.formats.blocks import MAIN, as_usage, is_beyond, less_usage, no_usage
from agentsdir.formats.errors import HookFailed, SessionStateError, Terminated, UsageError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.protocol import Content, ToolRequest
    from agentsdir.engine.inbox import Message
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.runner import SessionRef
    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import StreamEvent, Usage
    from agentsdir.formats.store.layout import AgentPaths


class Cancel(Exception):
    """Raised by a callback that is asked: it says no, with a reason, and has not failed."""

    def __init__(self, reason: str = "a callback said no") -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Callbacks:
    """The lifecycle callbacks of an app or a session; one that is None is not called.

    Turns of other agents, subagents among them, have none of these. One that is a coroutine is run
    to its end.

    Attributes:
        on_event: gets each stream event.
        on_tick_start: gets the number of a model call, from 1, and the turn's id, before the call.
        on_tick_end: gets the number of a model call and its tokens, None if they are not known.
        on_complete: gets the result of a turn that was completed.
        on_error: gets the error of a turn that failed.
        on_before_send: gets a prompt before it is queued, and returns the prompt to send in its
            place; None changes nothing. What it raises cancels the send.
        on_after_send: gets the result of a send.
        on_tool_confirmation: gets a tool call that needs permission, and answers it; None leaves
            it to the user's hook and rules.
        on_session_create: gets a session that was made.
        on_session_close: gets a session that was closed.
        on_before_persist: gets a snapshot before it is saved, and returns the one to save in its
            place; None changes nothing, False cancels.
        on_after_persist: gets a snapshot that was saved.
        on_before_restore: gets a session's id and the snapshot that it is to be restored from, and
            returns the one to restore in its place; None changes nothing, False cancels.
        on_after_restore: gets a session that was restored, and its snapshot.
    """

    on_event: Callable[[StreamEvent], None] | None = None
    on_tick_start: Callable[[int, str], None] | None = None
    on_tick_end: Callable[[int, Usage | None], None] | None = None
    on_complete: Callable[[TurnResult], None] | None = None
    on_error: Callable[[BaseException], None] | None = None
    on_before_send: Callable[[SessionRef, Content], Content | None] | None = None
    on_after_send: Callable[[SessionRef, TurnResult], None] | None = None
    on_tool_confirmation: Callable[[ToolRequest], Decision | bool | None] | None = None
    on_session_create: Callable[[SessionRef], None] | None = None
    on_session_close: Callable[[SessionRef], None] | None = None
    on_before_persist: (
        Callable[[SessionRef, dict[str, Any]], dict[str, Any] | bool | None] | None
    ) = None
    on_after_persist: Callable[[SessionRef, dict[str, Any]], None] | None = None
    on_before_restore: Callable[[str, dict[str, Any]], dict[str, Any] | bool | None] | None = None
    on_after_restore: Callable[[SessionRef, dict[str, Any]], None] | None = None

    def merged(self, inner: Callbacks) -> Callbacks:
        """Return callbacks that call these first, then those of `inner`.

        Of those that return something, the second gets what the first returned. A no of the first
        is final, and a tool call is decided by the first that answers.
        """
        return Callbacks(
            **{
                field.name: _both(field.name, getattr(self, field.name), getattr(inner, field.name))
                for field in fields(Callbacks)
            }
        )


NO_CALLBACKS = Callbacks()
_CHANGING = ("on_before_send", "on_before_persist", "on_before_restore")


def _both(name: str, first: Any, then: Any) -> Any:
    if first is None or then is None:
        return first or then
    if name == "on_tool_confirmation":
        return partial(_first_answer, first, then)
    return partial(_one_after_the_other if name in _CHANGING else _each, first, then)


def _each(first: Callable[..., Any], then: Callable[..., Any], *given: Any) -> None:
    try:
        settled(first(*given))
    finally:
        settled(then(*given))


def _first_answer(first: Callable[..., Any], then: Callable[..., Any], request: Any) -> Any:
    answer = settled(first(request))
    return then(request) if answer is None else answer


def _one_after_the_other(
    first: Callable[..., Any], then: Callable[..., Any], of: Any, value: Any
) -> Any:
    changed = settled(first(of, value))
    if changed is False:
        return False
    changed = value if changed is None or changed is True else changed
    if isinstance(changed, str) and changed.strip():  # a prompt; each gets one as its parts
        changed = as_content(changed)
    again = settled(then(of, changed))
    return changed if again is None or again is True else again


class SessionCallbacks:
    """The callbacks of one session, with what becomes of their failures.

    Args:
        services: of the root in whose logs failures are recorded.
        paths: of the session's agent.
        session: what the callbacks get of it.
    """

    def __init__(
        self, callbacks: Callbacks, services: Services, paths: AgentPaths, session: SessionRef
    ) -> None:
        self._callbacks = callbacks
        self._services = services
        self._paths = paths
        self._session = session
        self._failed: set[str] = set()

    def tell(self, name: str, *given: Any) -> None:
        """Call one that only listens. What it raises is recorded, and noted, the first time."""
        callback = getattr(self._callbacks, name)
        if callback is None:
            return
        try:
            settled(callback(*given))
        except Terminated:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001, it is the program's
            self._record(name, error)

    def session_created(self) -> None:
        """Call `on_session_create`."""
        self.tell("on_session_create", self._session)

    def session_closed(self) -> None:
        """Call `on_session_close`."""
        self.tell("on_session_close", self._session)

    def after_send(self, result: TurnResult) -> None:
        """Call `on_after_send`."""
        self.tell("on_after_send", self._session, result)

    def after_persist(self, snapshot: dict[str, Any]) -> None:
        """Call `on_after_persist`."""
        self.tell("on_after_persist", self._session, snapshot)

    def after_restore(self, snapshot: dict[str, Any]) -> None:
        """Call `on_after_restore`."""
        self.tell("on_after_restore", self._session, snapshot)

    def before_send(self, message: Message) -> Message:
        """Call `on_before_send`, and return the message to send.

        A message whose id is in the log is returned as it was queued then. Raises
        `SessionStateError` (kind ``cancelled``) if the callback raises `Cancel`, and `HookFailed`
        if it fails or returns no content.
        """
        ask = self._callbacks.on_before_send
        if ask is None:
            return message
        if (there := queued_content(self._paths, message)) is not None:
            return message._replace(content=there)
        name = "on_before_send"
        try:
            changed = settled(ask(self._session, message.content))
        except Cancel as no:
            raise cancelled(no.reason) from no
        except Exception as error:
            raise self._failure(name, error) from error
        if changed is None:
            return message
        try:
            return message._replace(content=as_content(changed))
        except ValueError as flaw:
            raise self._failure(name, TypeError(f"it returned no content: {flaw}")) from None

    def tool_decision(self, request: ToolRequest) -> Decision | None:
        """Call `on_tool_confirmation`; None leaves the call to the user's hook and rules.

        Raises `HookFailed` if it fails, which denies the call.
        """
        ask = self._callbacks.on_tool_confirmation
        if ask is None:
            return None
        try:
            answer = settled(ask(request))
        except Cancel as no:
            return Decision(allowed=False, reason=no.reason)
        except Exception as error:
            raise _as_failure("on_tool_confirmation", error) from error
        if isinstance(answer, bool):
            return Decision(allowed=answer, reason="" if answer else "a callback said no")
        if answer is None or isinstance(answer, Decision):
            return answer
        raise _as_failure("on_tool_confirmation", TypeError("it returned no decision"))

    def before_persist(self, snapshot: dict[str, Any]) -> dict[str, Any] | None:
        """Call `on_before_persist`; return the snapshot to save, None to save none.

        Nothing is saved where it raises, either; what is no `Cancel` is recorded.
        """
        ask = self._callbacks.on_before_persist
        if ask is None:
            return snapshot
        try:
            return _snapshot(settled(ask(self._session, snapshot)), snapshot)
        except Cancel:
            return None
        except Exception as error:  # noqa: BLE001, it is the program's
            self._record("on_before_persist", error)
            return None

    def before_restore(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Call `on_before_restore`; return the snapshot to restore.

        Raises `SessionStateError` (kind ``cancelled``) if it returns False or raises `Cancel`, and
        `HookFailed` if it fails. Nothing is recorded: the agent is left as it is.
        """
        ask = self._callbacks.on_before_restore
        if ask is None:
            return snapshot
        try:
            made = _snapshot(settled(ask(self._paths.id, snapshot)), snapshot)
        except Cancel as no:
            raise restore_cancelled(no.reason) from no
        except Exception as error:
            raise _as_failure("on_before_restore", error) from error
        if made is None:
            raise restore_cancelled("a callback said no")
        return made

    def _failure(self, name: str, error: BaseException) -> HookFailed:
        failed = _as_failure(name, error)
        record_failure(self._services, self._paths, name, failed.message)
        return failed

    def _record(self, name: str, error: BaseException) -> None:
        if name not in self._failed:
            self._failed.add(name)
            self._services.notify_user(self._failure(name, error).message)


class LoggedSession:
    """A session as its log has it, where it is no app's (`SessionRef`)."""

    def __init__(self, paths: AgentPaths) -> None:
        self._paths = paths
        self.current_tick = 0

    @property
    def id(self) -> str:
        """The id of its agent."""
        return self._paths.id

    @property
    def status(self) -> str:
        """It is idle, running or closed."""
        if read_agent(self._paths).state.session.state is SessionState.TERMINATED:
            return "closed"
        return "running" if locks.is_held(self._paths.turn) else "idle"

    def snapshot(self) -> dict[str, Any]:
        """Raise `UsageError`: an app's session has snapshots."""
        raise UsageError("this session has no app, so there is no snapshot", kind="no-snapshot")


def restore_cancelled(reason: str) -> SessionStateError:
    """Return the error for a session that was not restored."""
    return SessionStateError(f"the session was not restored: {reason}", kind="cancelled")


def _as_failure(name: str, error: BaseException) -> HookFailed:
    return HookFailed(f"the callback {name} failed: {failed(error).output}", hook=name)


def _snapshot(answer: Any, given: dict[str, Any]) -> dict[str, Any] | None:
    if answer is None or answer is True:
        return given
    if answer is False:
        return None
    if not isinstance(answer, dict):
        raise TypeError("it returned no snapshot")
    return answer


class TurnCallbacks:
    """The callbacks of one turn: its events, its model calls, and its end.

    The turn may run in this process, or be read from the log after another process has run it.

    Args:
        on_event: gets each event before the callbacks do.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        session: SessionCallbacks,
        on_event: Callable[[StreamEvent], None],
    ) -> None:
        self.session = session
        self._execution_id = ""
        self._on_event = on_event
        self._shows_events = callbacks.on_event is not None
        self._shows_ticks = bool(callbacks.on_tick_start or callbacks.on_tick_end)
        self._counter = TickCounter(None)
        self._is_told = False
        self._tick = 0
        self._in_tick = False
        self._spent: Usage | None = None
        self._spent_before: Usage | None = no_usage()

    @property
    def take(self) -> Callable[[StreamEvent], None]:
        """What is to be called with each event."""
        return self._take if self._shows_events or self._shows_ticks else self._on_event

    def begin(self, execution_id: str) -> None:
        """Begin the turn of this id."""
        self._execution_id = execution_id

    def begin_tick(self) -> None:
        """Begin a model call. Without it, a call begins with the first block of its answer."""
        self._is_told = True
        self._next_tick()

    def end(self, result: TurnResult | None, error: BaseException | None) -> None:
        """End the turn: with its result, or with the error that it ended with."""
        self._end_tick()
        if error is None:
            self.session.tell("on_complete", result)
        else:
            self.session.tell("on_error", error)

    def _take(self, event: StreamEvent) -> None:
        if self._shows_ticks:
            self._count(event)
        self._on_event(event)
        if self._shows_events:
            self.session.tell("on_event", event)

    def _count(self, event: StreamEvent) -> None:
        before = self._counter.count
        self._counter.is_beyond(event)
        if self._counter.count > before and not self._is_told:
            self._next_tick()
        if event["type"] == "metadata_update" and event["conversationId"] == MAIN:
            self._spent = as_usage(event["metadata"].get("usage")) or self._spent

    def _next_tick(self) -> None:
        self._end_tick()
        self._tick += 1
        self._in_tick = True
        self.session.tell("on_tick_start", self._tick, self._execution_id)

    def _end_tick(self) -> None:
        if not self._in_tick:
            return
        self._in_tick = False
        # What a provider reports is the sum over the turn up to then.
        whole, before = self._spent, self._spent_before
        spent: Usage | None = None
        if whole is not None and before is not None:
            # A stand-in counts from zero again.
            spent = whole if is_beyond(before, whole) else less_usage(whole, before)
        self.session.tell("on_tick_end", self._tick, spent)
        self._spent, self._spent_before = None, whole
