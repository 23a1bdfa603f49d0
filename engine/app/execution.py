"""One turn that a session runs: its events as they come, its result, and how it is ended early."""

from __future__ import annotations

from concurrent.futures import Future, wait
from contextlib import contextmanager
from threading import Condition, Event
from typing import TYPE_CHECKING

from agentsdir.engine.cancel import TurnCancelled
from agentsdir.formats.errors import Interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.engine.app.session import Session
    from agentsdir.engine.result import TurnResult
    from agentsdir.formats.blocks import StreamEvent


class Execution:
    """What `send`, `render` and `spawn` return at once, while the turn runs in a thread.

    Iterating yields the turn's stream events from the first, waits for more, and ends with the
    turn; each iteration has all of them. A turn that fails ends the iteration, and `result` raises.

    Attributes:
        session: the session that was called.
        child: the session that `spawn` made, once it is there.
        future: has the result, for what waits for several (`concurrent.futures.wait`).
    """

    def __init__(self, session: Session, earlier: Execution | None) -> None:
        self.session = session
        self.child: Session | None = None
        self._earlier = earlier
        self._is_queued = Event()
        self._events: list[StreamEvent] = []
        self._changed = Condition()
        self.future: Future[TurnResult] = Future()
        self.future.set_running_or_notify_cancel()  # no waiter cancels it for the others
        self._turn_id: str | None = None
        self._message_id: str | None = None
        self._aborted: str | None = None
        self._listeners: list[Callable[[], None]] = []

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
        """Return the result as `result` does. Raises `TimeoutError` after `timeout` seconds."""
        return self.future.result(timeout)

    def wait_until_done(self) -> None:
        """Wait until the turn has ended, however it did."""
        wait((self.future,))

    def abort(self, reason: str = "") -> None:
        """Ask the turn to end, with those of its children; it does not wait for that.

        A turn that has not begun never does. Its message is taken out of the inbox.
        """
        self._aborted = self._aborted or reason or "interrupt"
        self.session.end_turn(self, reason)

    def __iter__(self) -> Iterator[StreamEvent]:
        seen = 0
        while new := self._wait_for_more(seen):
            seen += len(new)
            yield from new

    def _wait_for_more(self, seen: int) -> list[StreamEvent]:
        """Return the events after the first `seen`, once there are any; none at the end."""
        with self._changed:
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

    def queued(self, message_id: str | None) -> None:
        """Take the message's id; None where there is no message."""
        self._message_id = message_id
        self._is_queued.set()

    def wait_until_queued(self) -> None:
        """Wait until the message is in the inbox, or the execution has ended without."""
        self._is_queued.wait()

    def wait_for_queue(self) -> None:
        """Wait until the messages of all earlier calls are in the inbox."""
        if self._earlier is not None:
            self._earlier.wait_until_queued()

    def wait_for_turn(self) -> None:
        """Wait until the turns of all earlier calls have ended."""
        if self._earlier is not None:
            self._earlier.wait_until_done()
            self._earlier = None

    def started(self, turn_id: str) -> None:
        """Take the turn's id. Raises `TurnCancelled` for a turn that `abort` came before."""
        self._turn_id = turn_id
        if self._aborted is not None:
            raise TurnCancelled("interrupt")

    def add(self, event: StreamEvent) -> None:
        """Take a stream event."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()
        self._tell()

    def complete(self, result: TurnResult) -> None:
        """End with a result."""
        self._turn_id = self._turn_id or result.turn_id
        self._end(lambda: self.future.set_result(result))

    def fail(self, error: BaseException) -> None:
        """End with an error. An interrupt of the turn is none of the thread that asks."""
        if isinstance(error, TurnCancelled):
            error = Interruption(f"the turn was aborted: {error.reason}", kind="turn-aborted")
        elif isinstance(error, KeyboardInterrupt | SystemExit):
            error = Interruption("the turn was interrupted", kind="turn-aborted")
        self._end(lambda: self.future.set_exception(error))

    def _end(self, settle: Callable[[], None]) -> None:
        with self._changed:
            settle()
            self._changed.notify_all()
        self._earlier = None
        self._is_queued.set()
        self._tell()

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def never_began() -> Interruption:
    """Return the error of a turn that was aborted before it began."""
    return Interruption("the turn was aborted before it began", kind="turn-aborted")
