"""Kernel locks that die with their holder (decision D10).

Order, never reversed: root create lock, slots, an agent's `.turn`, an agent's `.lock`.
"""

from __future__ import annotations

import fcntl
import math
import os
import signal
import stat
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from agentsdir.formats.directory.layout import FILE_MODE
from agentsdir.formats.errors import Busy, NotRecorded, UnsafePath, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FOREVER = -1.0


@contextmanager
def hold(
    path: Path, *, wait: float = FOREVER, what: str = "", hint: str = "--wait SECONDS waits for it"
) -> Iterator[None]:
    """Hold the lock file at `path`, which stays when released.

    Args:
        wait: seconds to wait for another holder; negative waits for ever, 0 does not wait.
        what: what is locked, for the message.
        hint: what to do when it stays held, for the message.

    Raises `Busy` when the time is over, `NotRecorded` where the system cannot lock.
    """
    if math.isnan(wait):
        raise UsageError("a time to wait is a number of seconds")
    with suppress(OSError):  # what cannot be looked at cannot be locked either, which is said below
        if not stat.S_ISREG(path.lstat().st_mode):
            raise UnsafePath(f"{path} is no regular file")
    from filelock import Timeout, UnixFileLock  # imports asyncio; only writers pay for it

    lock = UnixFileLock(str(path), mode=FILE_MODE, timeout=wait, fallback_to_soft=False)
    try:
        lock.acquire(poll_interval=0.02)
    except Timeout:
        raise Busy(
            f"{what or path} is held by another process",
            hint=hint,
        ) from None
    except OSError as error:
        raise NotRecorded(f"cannot lock {path}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block is over.

    An interrupt between taking a lock and noting that it is taken would leave it held by this very
    process, which then waits for itself. Only for short blocks, such as one append.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def hold_undisturbed(path: Path, *, what: str) -> Iterator[None]:
    """Hold a lock for a short block that no signal interrupts; waiting for it, they do."""
    while True:
        with ExitStack() as stack:
            stack.enter_context(undisturbed())
            try:
                stack.enter_context(hold(path, wait=0, what=what))
            except Busy:
                pass
            else:
                yield
                return
        time.sleep(0.005)


def is_held(path: Path) -> bool:
    """Tell whether some process holds the lock, by asking for a share of it for an instant."""
    try:
        # O_NONBLOCK: a FIFO planted in place of a lock must not hang a reader.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
