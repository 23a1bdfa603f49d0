"""The sessions of an app that are in memory: at most so many, and none that is idle for long."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import contextmanager
from threading import Event, Lock, RLock, Thread, current_thread
from typing import TYPE_CHECKING
from weakref import WeakMethod, WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.engine.app.session import Session


class _Making:
    """A session that is made: the lock, and how many threads hold it or wait for it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.threads = 0


class SessionRegistry:
    """The sessions in memory by their id, the one that was used longest ago first.

    A session that is put out of memory is saved first, and comes back when it is asked for, or
    used: as the same object, as long as the program holds that. One that runs a turn stays.

    Args:
        max_active: how many sessions there may be; None for no limit.
        idle_timeout: seconds without use after which a session is put out; None for no limit.
        put_out: is given a session that is put out of memory.
    """

    def __init__(
        self,
        max_active: int | None,
        idle_timeout: float | None,
        put_out: Callable[[Session], None],
    ) -> None:
        self._max_active = max_active
        self._idle_timeout = idle_timeout
        self._put_out = put_out
        self._lock = Lock()
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._known: WeakValueDictionary[str, Session] = WeakValueDictionary()
        self._used: dict[str, float] = {}
        self._making: dict[str, _Making] = {}
        self._closed = Event()
        self._sweeper: Thread | None = None
        if idle_timeout is not None:
            # A daemon that knows the registry weakly: it keeps neither the process nor this alive.
            given = (WeakMethod(self.sweep), self._closed, idle_timeout)
            self._sweeper = Thread(target=_sweep_now_and_then, args=given, daemon=True)
            self._sweeper.start()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        with self._lock:
            return iter(tuple(self._sessions.values()))

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._sessions

    @contextmanager
    def making(self, key: str) -> Iterator[None]:
        """Hold off other threads that make the session of a name or an id in the block.

        Sessions of other keys are made meanwhile: what a store, a runner or a callback does for
        one may take long, or wait for the turn of another one. An empty key holds off none.
        """
        if not key:
            yield
            return
        with self._lock:
            making = self._making.setdefault(key, _Making())
            making.threads += 1
        try:
            with making.lock:
                yield
        finally:
            with self._lock:
                making.threads -= 1
                if not making.threads:
                    del self._making[key]

    def get(self, session_id: str) -> Session | None:
        """Return the session that has an id, if the registry or the program holds it."""
        with self._lock:
            return self._known.get(session_id)

    def add(self, session: Session) -> Session:
        """Add a session, unless there is one of its id; return the one that is there."""
        with self._lock:
            session = self._known.setdefault(session.id, session)
        self.touch(session)
        return session

    def touch(self, session: Session) -> None:
        """Note that a session is used. A session of the app that was put out comes back."""
        if not session.is_kept:
            return
        with self._lock:
            self._sessions.setdefault(session.id, session)
            self._sessions.move_to_end(session.id)
            self._used[session.id] = time.monotonic()
            beyond = self._beyond(self._max_active) if self._max_active is not None else {}
        self._put_out_all(beyond)

    def forget(self, session: Session) -> None:
        """Take out a session that was closed, or an app that is."""
        with self._lock:
            self._known.pop(session.id, None)
            if self._sessions.get(session.id) is session:
                del self._sessions[session.id], self._used[session.id]

    def sweep(self) -> list[str]:
        """Put out the sessions that were not used for `idle_timeout`; return their ids."""
        if self._idle_timeout is None:
            return []
        oldest = time.monotonic() - self._idle_timeout
        with self._lock:
            idle = {
                one: used
                for one in self._sessions.values()
                if (used := self._used[one.id]) <= oldest and not one.executions
            }
        return self._put_out_all(idle)

    def close(self) -> None:
        """End the sweeps, and wait until the one that runs has ended."""
        self._closed.set()
        if self._sweeper is not None and self._sweeper is not current_thread():
            self._sweeper.join()

    def _beyond(self, most: int) -> dict[Session, float]:
        """Return the sessions to put out, so that there are `most`: never the one used last."""
        *earlier, _ = self._sessions.values()
        free = [one for one in earlier if not one.executions]
        return {one: self._used[one.id] for one in free[: max(len(earlier) + 1 - most, 0)]}

    def _put_out_all(self, sessions: dict[Session, float]) -> list[str]:
        """Save sessions and put them out, but those that were used since the time that is given."""
        out = []
        for session, used in sessions.items():
            self._put_out(session)
            with self._lock:
                if self._used.get(session.id) == used and not session.executions:
                    del self._sessions[session.id], self._used[session.id]
                    out.append(session.id)
        return out


def _sweep_now_and_then(
    sweep: WeakMethod[Callable[[], list[str]]], closed: Event, idle_timeout: float
) -> None:
    while not closed.wait(max(idle_timeout / 4, 0.05)):
        now = sweep()
        if now is None:
            return
        now()
        del now
