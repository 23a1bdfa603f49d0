"""How the holder of a turn hears that it was asked to end (decision D15).

It looks into its log by a timer, and at once when somebody nudges it. A timer, and no thread: it
reaches a provider that waits for a pipe, and a process that starts others had better have one
thread only. What counts is the log alone, so that a nudge that comes when the turn is over, and the
process does something else, ends nothing.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agentsdir.formats.directory.locks import NEVER
from agentsdir.formats.directory.log import open_log, read_log
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.log import Position

NUDGE = signal.SIGURG
"""What a holder is sent; a process that does not listen is not disturbed by it."""
_LOOK_EVERY = 0.5  # seconds between two looks of a holder into its log


class AskedToEnd(KeyboardInterrupt):
    """A request in the log ended the turn; nobody at this terminal did. It says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TimedOut(KeyboardInterrupt):
    """The turn took longer than its sender gave it."""


class Ear:
    """Reads what was appended to a log since the last look.

    Args:
        position: where the log ended when the turn began.
        timeout: seconds from now on after which the turn is to end; 0 for never.
    """

    def __init__(
        self, paths: AgentPaths, position: Position, turn_id: str, timeout: float = 0
    ) -> None:
        self._paths = paths
        self._position = position
        self._turn_id = turn_id
        self._deadline = time.monotonic() + timeout if timeout else NEVER

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Raise `AskedToEnd` in the block when its turn is asked to end, and that is not cleared.

        `TimedOut` is raised when its time is over. Elsewhere than in the main thread nobody
        listens. What was heard is not heard again; another request is.
        """
        try:
            before = signal.signal(signal.SIGALRM, self._look)
        except ValueError:  # not the main thread
            yield
            return
        nudged_before = signal.signal(NUDGE, self._look)
        try:
            self._look(0, None)
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            signal.signal(NUDGE, nudged_before)

    def heed(self) -> None:
        """Raise `AskedToEnd` or `TimedOut` if the turn is to end now."""
        if time.monotonic() >= self._deadline:
            self._deadline = NEVER
            raise TimedOut
        reason = ""
        with suppress(OSError, AgentsdirError):  # whoever appends next says so
            if self._paths.log.stat().st_size > self._position.size:
                reason = self._read()
        if reason:
            raise AskedToEnd(reason)

    def _look(self, _number: int, _frame: FrameType | None) -> None:
        left = self._deadline - time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, min(_LOOK_EVERY, left) if left > 0 else _LOOK_EVERY)
        self.heed()

    def _read(self) -> str:
        """Read on in the log; return why the turn is to end, or nothing."""
        reason = ""
        with open_log(self._paths.log, self._position.size) as stream:
            for line in read_log(stream, str(self._paths.log), self._position):
                if line.after.size == line.offset:
                    break  # a writer is at work
                self._position = line.after
                record = line.record
                if record is None or record.data.get("turn_id") != self._turn_id:
                    continue
                if record.event == "abort.requested":
                    reason = str(record.data.get("reason") or "interrupt")
                elif record.event == "abort.cleared":
                    reason = ""
        return reason
