"""What breaks off the work of a thread from outside, and short blocks that nothing breaks off.

In the main thread that is a signal handler, which raises amid anything. Python runs no handler in
other threads. There every wait looks whether to go on: it calls `check` at least each `PAUSE`
seconds, and so does what works from event to event.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


PAUSE = 0.05
"""Seconds that a wait goes on, at most, before it looks again."""

# SIGALRM and SIGURG: a running turn listens for requests to end it (engine.cancel).
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGURG)

_looks: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("looks", default=())


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let SIGINT, SIGTERM, SIGHUP, SIGALRM and SIGURG wait until the block is over.

    An interrupt between taking a lock and noting that it is taken would leave it held by this very
    process, which then waits for itself. Only for short blocks, such as one append. In the block
    `check` raises nothing.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if in_main_thread() else None
    looks = _looks.set(())
    try:
        yield
    finally:
        _looks.reset(looks)
        if before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_main_thread() -> bool:
    """Tell whether this is the thread in which signal handlers run."""
    threading = sys.modules.get("threading")  # where nothing has loaded it, there is no other
    return threading is None or threading.current_thread() is threading.main_thread()


@contextmanager
def looking(look: Callable[[], None], *, alone: bool = False) -> Iterator[None]:
    """Have the waits of this thread call `look` in the block; what it raises breaks them off.

    Args:
        alone: nothing else, in a thread that was given the context of another one.
    """
    before = _looks.set((look,) if alone else (*_looks.get(), look))
    try:
        yield
    finally:
        _looks.reset(before)


def check() -> None:
    """Raise what breaks off the work of this thread, if anything does."""
    for look in _looks.get():
        look()


def until_check(seconds: float | None) -> float | None:
    """Return how long a wait may go on before it calls `check`.

    Args:
        seconds: how long it is to take; None for ever.
    """
    if not _looks.get():
        return seconds
    return PAUSE if seconds is None else min(seconds, PAUSE)


def sleep(seconds: float) -> None:
    """Sleep for some seconds, unless `check` raises before."""
    end = time.monotonic() + seconds
    check()
    while (left := until_check(end - time.monotonic())) is not None and left > 0:
        time.sleep(left)
        check()
