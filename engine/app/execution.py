"""One turn that a session runs: its events as they come, its result, and how it is ended early."""

from __future__ import annotations

import os
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Condition, Event, Lock, Thread, current_thread
from typing import TYPE_CHECKING

from agentsdir.engine.cancel import TurnCancelled
from agentsdir.engine.result import TurnResult
from agentsdir.engine.spawned_events import SpawnedEvents
from agentsdir.formats.errors import AgentsdirError, Interruption, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentsdir.engine.app.session import Session
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.store.layout import AgentPaths, Layout

_own: ContextVar[Execution | None] = ContextVar("own", default=None)
"""The execution inside of which this thread works: its own one, or that of the tool's turn."""
_noting = Lock()
"""Held while an execution notes what it waits for: two that wait for each other find out."""


class Execution:
    """What `send`, `render` and `spawn` return at once, while the turn runs in a thread.

    Iterating yields the turn's stream events from the first, waits for more, and ends with the
    turn; each iteration has all of them. A turn that fails ends the iteration, and `result` raises.
    Inside of the turn itself, iterating raises what `wait` does.

    Attributes:
        session: the session that was called.
        child: the session that `spawn` made, once it is there.
        children: whether the events have those of spawned agents: their blocks, and not only what
            becomes of each.
        future: has the result, for what waits for several (`concurrent.futures.wait`).
    """

    def __init__(self, session: Session, earlier: Execution | None) -> None:
        self.session = session
        self.child: Session | None = None
        self.children = False
        self._earlier = earlier
        self._is_queued = False
        self._is_queuing = False
        self._is_queued_or_done = Event()
        self._spawned: SpawnedEvents | None = None
        self._looking = Lock()
        self._events: list[StreamEvent] = []
        self._changed = Condition()
        self.future: Future[TurnResult] = Future()
        self.future.set_running_or_notify_cancel()  # no waiter cancels it for the others
        self._turn_id: str | None = None
        self._message_id: str | None = None
        self._aborted: str | None = None
        self._listeners: list[Callable[[], None]] = []
        self._waits_for: list[Execution] = []

    def __repr__(self) -> str:
        is_at = "done" if self.is_done else "not begun" if self.id is None else "running"
        return f"<execution {self.id or '-'} of session {self.session.id}, {is_at}>"

    @property
    def id(self) -> str | None:
        """The id of the turn; None until it has begun."""
        return self._turn_id

    @property
    def message_id(self) -> str | None:
        """The id of the message; None until it is in the inbox, and for `render`."""
        return self._message_id

    @property
    def is_done(self) -> bool:
        """Whether the turn has ended."""
        return self.future.done()

    @property
    def is_aborted(self) -> bool:
        """Whether `abort` was called."""
        return self._aborted is not None

    @property
    def result(self) -> TurnResult:
        """The result, when the turn has ended.

        Raises the error of a turn that failed, and `Interruption` (kind ``turn-aborted``) for one
        that was ended early.
        """
        return self.wait()

    def wait(self, timeout: float | None = None) -> TurnResult:
        """Return the result as `result` does.

        Raises `TimeoutError` after `timeout` seconds, and `UsageError` (kind ``waits-for-itself``)
        inside of this turn, or of one that this one waits for or comes after: in its middleware,
        component, callbacks and tools.
        """
        with self.awaited():
            return self.future.result(timeout)

    def check_can_wait(self) -> None:
        """Raise what `wait` raises where it would wait for ever."""
        if self.waits_for_this_thread:
            raise UsageError(
                "a turn cannot wait for itself, for a later one of its session, or for one that "
                "waits for it",
                hint="spawn a child, or queue a message",
                kind="waits-for-itself",
            )

    @property
    def waits_for_this_thread(self) -> bool:
        """Whether it cannot end before the turn inside of which this thread works."""
        own = _own.get()
        seen: set[Execution] = set()
        found: list[Execution] = [] if own is None else [self]
        while found:
            one = found.pop()
            if one is own:
                return True
            if one not in seen and not one.is_done:
                seen.add(one)
                found += one._waits_for
                if one._earlier is not None:
                    found.append(one._earlier)
        return False

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Note for the block that this thread waits for it. Raises what `check_can_wait` raises."""
        own = _own.get()
        with _noting:
            self.check_can_wait()
            if own is not None:
                own._waits_for.append(self)
        try:
            yield
        finally:
            if own is not None:
                with _noting:
                    own._waits_for.remove(self)

    def wait_until_done(self) -> None:
        """Wait until the turn has ended, however it did."""
        wait((self.future,))

    def abort(self, reason: str = "") -> None:
        """Ask the turn to end, with those of its children; it does not wait for that.

        A turn that has not begun never does: its message is taken out of the inbox, and the result
        is there at once, or as soon as a message that is just being queued is there. A turn that
        has ended stays as it is.
        """
        with self._changed:
            self._aborted = self._aborted or reason or "interrupt"
            if self._is_queuing:
                return  # what queues it takes it back: another process may be quicker
        if not self.is_done and self.session.end_turn(self, reason):
            self.fail(never_began())

    def __iter__(self) -> Iterator[StreamEvent]:
        if not self.is_done:
            self.check_can_wait()
        seen = 0
        while new := self._wait_for_more(seen):
            seen += len(new)
            yield from new

    def _wait_for_more(self, seen: int) -> list[StreamEvent]:
        """Return the events after the first `seen`, once there are any; none at the end."""
        if len(self._events) <= seen and not self.is_done:
            with self.awaited(), self._changed:
                self._changed.wait_for(lambda: len(self._events) > seen or self.is_done)
        return self._events[seen:]

    @contextmanager
    def watched(self, listener: Callable[[], None]) -> Iterator[None]:
        """Have `listener` called, in the turn's thread, at each event and at the end."""
        with self._changed:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._changed:
                self._listeners.remove(listener)

    def events_from(self, position: int) -> list[StreamEvent]:
        """Return the events that have come by now after the first `position`."""
        return self._events[position:]

    # What the session says of the turn.

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Know what this thread does, with the tools that it runs, as inside of this execution."""
        before = _own.set(self)
        try:
            yield
        finally:
            _own.reset(before)

    def queues(self) -> None:
        """Begin to put the message into the inbox. Raises as `begins` does."""
        with self._changed:
            self.begins()
            self._is_queuing = True

    def queued(self, message_id: str | None) -> None:
        """Take the message's id; None where there is no message."""
        with self._changed:
            self._message_id = message_id
            self._is_queuing = False
        self._is_queued = True
        self._is_queued_or_done.set()

    def wait_until_queued(self) -> None:
        """Wait until the messages of this call, and of those before it, are in the inbox.

        A call that ends without a message is passed over. Inside of one of these calls, those
        before that one count.
        """
        own = _own.get()
        one = own._earlier if own is not None and self._comes_with_or_after(own) else self
        while one is not None:
            one._is_queued_or_done.wait()
            one = None if one._is_queued else one._earlier

    def wait_for_queue(self) -> None:
        """Wait until the messages of all earlier calls are in the inbox."""
        if self._earlier is not None:
            self._earlier.wait_until_queued()

    @property
    def waits(self) -> bool:
        """Whether the turn of an earlier call has not ended."""
        one = self._earlier
        while one is not None and one.is_done:
            one = one._earlier
        return one is not None

    def wait_for_turn(self) -> None:
        """Wait until the turns of all earlier calls have ended."""
        while (one := self._earlier) is not None:
            one.wait_until_done()
            self._earlier = one._earlier

    def _comes_with_or_after(self, other: Execution | None) -> bool:
        one: Execution | None = self
        while other is not None and one is not None:
            if one is other:
                return True
            one = one._earlier
        return False

    def begins(self) -> None:
        """Raise the error of a turn that `abort` came before, if it did."""
        if self._aborted is not None:
            raise never_began()

    def check_awaited(self) -> None:
        """Raise the error of a turn that `abort` has ended while it waited to begin."""
        if self.is_done:
            raise never_began()

    def started(self, turn_id: str) -> None:
        """Take the turn's id. Raises `TurnCancelled` for a turn that `abort` came before."""
        self._turn_id = turn_id
        if self._aborted is not None:
            raise TurnCancelled("interrupt")

    def recorded(self, turn_id: str) -> None:
        """Take the id of a turn that another process has run, and the log has."""
        self._turn_id = turn_id

    def add(self, event: StreamEvent) -> None:
        """Take a stream event. None comes after the end."""
        with self._changed:
            if self.is_done:
                return
            self._events.append(event)
            self._changed.notify_all()
        self._tell()

    def follow(self, layout: Layout, paths: AgentPaths) -> None:
        """Take also what becomes of the agents that are spawned from now on (`look`)."""
        with self._looking:
            if self._spawned is None:
                self._spawned = SpawnedEvents(layout, paths, children=self.children)

    def look(self) -> None:
        """Take what has become of spawned agents, if any are followed. It raises nothing."""
        if self._spawned is not None:
            with self._looking, suppress(AgentsdirError, OSError):
                for event in self._spawned.poll():
                    self.add(event)

    def complete(self, result: object) -> None:
        """End with what the outermost middleware returned, which has to be a result."""
        if isinstance(result, TurnResult):
            self._turn_id = self._turn_id or result.turn_id
            self._end(lambda: self.future.set_result(result))
        else:
            why = f"a middleware returned {type(result).__name__}, and no result of a turn"
            self.fail(UsageError(why, hint="return what `next` returns", kind="bad-middleware"))

    def fail(self, error: BaseException) -> None:
        """End with an error. What would end the thread that asks for the result is changed."""
        made: BaseException = error
        if isinstance(error, TurnCancelled):
            made = Interruption(f"the turn was aborted: {error.reason}", kind="turn-aborted")
        elif not isinstance(error, Exception):
            made = Interruption(
                f"the turn was interrupted by {type(error).__name__}", kind="turn-aborted"
            )
        elif isinstance(error, StopIteration):  # no future of asyncio takes it
            made = RuntimeError("what is around the turn raised StopIteration")
        if made is not error:
            made.__cause__ = error
        self._end(lambda: self.future.set_exception(made))

    def _end(self, settle: Callable[[], None]) -> None:
        self.look()
        with self._changed:
            if self.is_done:  # it was aborted before
                return
            settle()
            self._changed.notify_all()
        self._is_queued_or_done.set()
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def never_began() -> Interruption:
    """Return the error of a turn that was aborted before it began."""
    return Interruption("the turn was aborted before it began", kind="turn-aborted")


class RunningExecutions:
    """The executions of an app that run, each in a thread.

    The threads are no daemons: a program that ends waits for its turns.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: dict[Thread, Execution] = {}
        self._is_closed = False
        self._process = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child: the threads are in its parent."""
        return os.getpid() != self._process

    def check_open(self) -> None:
        """Raise `UsageError` (kind ``app-closed``) once it is closed, but for what turns begin."""
        if self._is_closed and _own.get() is None:
            raise UsageError("the app is closed", kind="app-closed")

    def start(self, execution: Execution, work: Callable[[], None]) -> None:
        """Do the work of an execution in a thread. Raises what `check_open` raises."""
        self.check_open()

        def run() -> None:
            try:
                work()
            finally:
                with self._lock:
                    del self._threads[thread]

        thread = Thread(target=run, name=f"agentsdir {execution.session.id}")
        with self._lock:
            try:
                thread.start()
            except RuntimeError as error:
                raise AgentsdirError(
                    f"the system has no thread for a turn: {error}",
                    hint="wait for turns that run before you begin more",
                    kind="no-thread",
                ) from error
            self._threads[thread] = execution

    def close(self, *, abort: bool) -> None:
        """Begin no more, and wait until all have ended.

        An exception in this thread, as Ctrl-C raises one, aborts them and passes when they have
        ended.

        Args:
            abort: whether to abort them first.

        Raises `UsageError` (kind ``waits-for-itself``) inside of one of them.
        """
        if _own.get() is not None:
            raise UsageError(
                "an app cannot be closed inside of a turn: that waits for the turn's end",
                kind="waits-for-itself",
            )
        self._is_closed = True
        if abort:
            self._abort()
        try:
            self._join()
        except BaseException:
            self._abort()
            self._join()
            raise

    def _abort(self) -> None:
        with self._lock:
            running = [*self._threads.values()]
        for execution in running:
            with suppress(AgentsdirError):  # its log cannot be written: the turn ends by itself
                execution.abort("close")

    def join(self, executions: Iterable[Execution]) -> None:
        """Wait until all is done that follows from executions, as the saves of their sessions.

        What this thread itself does is not waited for.
        """
        with self._lock:
            threads = [thread for thread, one in self._threads.items() if one in executions]
        for thread in threads:
            if thread is not current_thread():
                thread.join()

    def _join(self) -> None:
        while threads := [*self._threads]:
            threads[0].join()
