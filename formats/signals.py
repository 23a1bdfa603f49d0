"""Short blocks of code that no signal breaks off."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


# SIGALRM and SIGURG: a running turn listens for requests to end it (engine.cancel).
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGURG)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let SIGINT, SIGTERM, SIGHUP, SIGALRM and SIGURG wait until the block is over.

    An interrupt between taking a lock and noting that it is taken would leave it held by this very
    process, which then waits for itself. Only for short blocks, such as one append.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
