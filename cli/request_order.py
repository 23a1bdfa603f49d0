"""Which request of the line protocol is next: in order per agent, side by side across agents."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from agentsdir.cli.requests import LANES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.cli.requests import Id, Lane, Request


class RequestOrder:
    """The requests that wait, and how many are being done.

    A request waits while an earlier one that has not ended shares a key with it. Each lane is
    counted by itself, so that `interrupt` is not held up by those that wait for a turn.

    Args:
        limit: how many of a lane are done at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: dict[Id, tuple[str, ...]] = {}
        self._queues: dict[str, deque[Id]] = {}
        self._waiting: dict[Id, Request] = {}
        self._ready: dict[Lane, deque[Id]] = {lane: deque() for lane in LANES}
        self._begun = dict.fromkeys(LANES, 0)

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def has(self, request_id: Id) -> bool:
        """Return whether a request of this id waits."""
        return request_id in self._waiting

    def add(self, request: Request, keys: Iterable[str]) -> None:
        """Add a request to those that wait."""
        self._waiting[request.id] = request
        self._keys[request.id] = tuple(dict.fromkeys(keys))
        for key in self._keys[request.id]:
            self._queues.setdefault(key, deque()).append(request.id)
        self._make_ready(request.id)

    def also(self, request: Request, keys: Iterable[str]) -> None:
        """Give a request that is taken more keys: those that wait for one of them wait for it."""
        more = [key for key in dict.fromkeys(keys) if key not in self._keys[request.id]]
        self._keys[request.id] += tuple(more)
        for key in more:
            self._queues.setdefault(key, deque()).appendleft(request.id)

    def next(self) -> Request | None:
        """Take the next request that can be done; None if all have to wait."""
        for lane, ready in self._ready.items():
            if ready and self._begun[lane] < self._limit:
                self._begun[lane] += 1
                return self._waiting.pop(ready.popleft())
        return None

    def done(self, request: Request) -> None:
        """Note that a request which was taken has ended."""
        self._begun[request.lane] -= 1
        self._release(request.id)

    def take_out(self, request_id: Id) -> Request | None:
        """Take out a request that waits, not to be done; None if there is none of this id."""
        request = self._waiting.pop(request_id, None)
        if request is not None:
            if request_id in self._ready[request.lane]:
                self._ready[request.lane].remove(request_id)
            self._release(request_id)
        return request

    def drop(self) -> list[Request]:
        """Take out all requests that wait."""
        taken = list(self._waiting)
        return [request for one in taken if (request := self.take_out(one)) is not None]

    def _release(self, request_id: Id) -> None:
        for key in self._keys.pop(request_id):
            queue = self._queues[key]
            queue.remove(request_id)
            if queue:
                self._make_ready(queue[0])
            else:
                del self._queues[key]

    def _make_ready(self, request_id: Id) -> None:
        """Note that a request can be done, if it waits and is the first of all its keys."""
        request = self._waiting.get(request_id)
        if request is None or any(
            self._queues[key][0] != request_id for key in self._keys[request_id]
        ):
            return
        ready = self._ready[request.lane]
        if request_id not in ready:
            ready.append(request_id)
