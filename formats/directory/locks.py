"""Kernel locks that die with their holder (decision D10; SPEC.md, "Locks and durability").

`flock` on files that stay when released. Order, never reversed: root create lock, an agent's
`.turn`, slots, an agent's `.lock`.

A lock file that somebody removed or replaced locks nothing any more. So whoever takes a lock looks
whether its file still stands at the path, and takes the one that does; a holder can ask the same
before it writes (`Held.check`).
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress

from agentsdir.formats.directory.layout import open_plain
from agentsdir.formats.errors import Busy, NoSuchAgent, NotRecorded, UsageError
from agentsdir.formats.tuples import NamedTuple
from agentsdir.formats.undisturbed import undisturbed as undisturbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOREVER = -1.0
NEVER = float("inf")
"""A time that does not come."""
PATIENCE = 10.0
"""Seconds to wait for a lock that nobody holds for long, as the create lock."""
# A reader that asks whether a lock is held has a share of it for some microseconds.
GRACE = 0.05
_LONG_PAUSE = 0.02
_SHORT_PAUSE = 0.005

_held: set[int] = set()


def _let_go() -> None:
    """Close a forked child's copies: a lock is its taker's, and must not outlive it in a child."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


class Held(NamedTuple):
    """A lock that this process holds."""

    path: Path
    descriptor: int

    def check(self) -> None:
        """Raise `Busy` when the lock file was removed or replaced: others may hold its name."""
        if not _stands(self.descriptor, self.path):
            raise Busy(
                f"{self.path} was removed or replaced while it was held; nothing was written",
                hint="another process may be at work; never remove lock files",
            )


@contextmanager
def hold(
    path: Path, *, wait: float = FOREVER, what: str = "", hint: str = "--wait SECONDS waits for it"
) -> Iterator[Held]:
    """Hold the lock file at `path`, which stays when released.

    Args:
        wait: seconds to wait for another holder; negative waits for ever, 0 does not wait.
        what: what is locked, for the message.
        hint: what to do when it stays held, for the message.

    Raises `Busy` when the time is over, `NoSuchAgent` when the folder is gone, `UnsafePath` for
    anything but a regular file, `NotRecorded` where the system cannot lock.
    """
    if wait != wait:  # not a number
        raise UsageError("a time to wait is a number of seconds")
    end = NEVER if wait < 0 else time.monotonic() + max(wait, GRACE)
    while (taken := _take(path)) is None:
        if time.monotonic() >= end:
            raise Busy(f"{what or path} is held by another process", hint=hint)
        time.sleep(_LONG_PAUSE if wait else _SHORT_PAUSE)
    try:
        yield taken
    finally:
        _release(taken)


@contextmanager
def hold_undisturbed(path: Path) -> Iterator[Held]:
    """Hold a lock for a short block that no signal interrupts; waiting for it, they do."""
    while True:
        with undisturbed():
            if (taken := _take(path)) is not None:
                try:
                    yield taken
                finally:
                    _release(taken)
                return
        time.sleep(_SHORT_PAUSE)


def _take(path: Path) -> Held | None:
    """Take the lock if nobody has it."""
    try:
        descriptor = open_plain(path, os.O_RDWR | os.O_CREAT)
    except FileNotFoundError:
        raise NoSuchAgent(f"{path.parent} is gone") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stands = _stands(descriptor, path)
    except BlockingIOError:
        stands = False
    except OSError as error:
        os.close(descriptor)
        raise NotRecorded(f"cannot lock {path}: {error.strerror}") from error
    if not stands:
        os.close(descriptor)
        return None
    _held.add(descriptor)
    return Held(path, descriptor)


def _stands(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _release(taken: Held) -> None:
    if taken.descriptor in _held:  # else this is a forked child, which has closed its copy
        _held.discard(taken.descriptor)
        os.close(taken.descriptor)


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
    except BlockingIOError:
        return True
    except OSError:  # no locks here: whoever wants to write is told
        return False
    finally:
        os.close(descriptor)
    return False
