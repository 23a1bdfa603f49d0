"""The last line of a terminal, which is redrawn in place while something runs."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.environment import Environment

# The cursor stays at the beginning of the line: a terminal that gets narrower may fold it, and from
# there all of it is erased.
_ERASE = "\r\x1b[J"
DEFAULT_WIDTH = 80
_WIDEST = 500
"""Columns; a terminal that says it has more is not believed."""


class StatusLine:
    """Draws one line at a terminal over and over, and erases it before other text is written.

    It writes to the descriptor, past the buffers of `sys.stderr`, so that a signal handler may draw
    it at any time. Nothing is drawn while a question is open at the terminal, in whichever process,
    or while this job is in the background: the line would stand in the user's prompt.

    Args:
        descriptor: of the terminal.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._device = ""
        with suppress(OSError):
            self._device = os.ttyname(descriptor)
        self._is_drawn = self._was_drawn = False
        self._is_paused = False

    @classmethod
    def of(cls, env: Environment) -> StatusLine | None:
        """Return the line of standard error; None if that is no terminal that can redraw one."""
        if not env.stderr.isatty() or env.variables.get("TERM", "dumb") in ("", "dumb"):
            return None
        try:
            return cls(env.stderr.fileno())
        except OSError:  # a stream without a descriptor
            return None

    @property
    def width(self) -> int:
        """The columns of the terminal now."""
        columns = 0
        with suppress(OSError):
            columns = os.get_terminal_size(self._descriptor).columns
        return min(columns, _WIDEST) or DEFAULT_WIDTH

    def draw(self, text: str) -> None:
        """Show a text in place of the last one. It has to be 2 columns narrower than the width."""
        if not self._is_paused and self._is_in_foreground() and not self._is_asked():
            self._is_drawn = self._was_drawn = True
            self._write(f"{_ERASE} {text}\r")

    def erase(self, *, of_others: bool = False) -> None:
        """Erase the line, so that other text can be written there.

        Args:
            of_others: once it was drawn, also what another process drew there since, or the
                terminal echoed. The cursor must be in a line that may be erased.
        """
        if (self._is_drawn or (of_others and self._was_drawn)) and self._is_in_foreground():
            self._write(_ERASE)
        self._is_drawn = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Erase the line, and draw nothing within the block, which has the terminal for itself."""
        before, self._is_paused = self._is_paused, True
        self.erase()
        try:
            yield
        finally:
            self._is_paused = before

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal is gone
            os.write(self._descriptor, text.encode(errors="replace"))

    def _is_in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:  # not the terminal of this session
            return True

    def _is_asked(self) -> bool:
        """Tell whether a process has a question open: `cli/confirm` locks the terminal then."""
        if not self._device:
            return False
        try:
            lock = os.open(self._device, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:  # another user's terminal, as after `su`
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False
