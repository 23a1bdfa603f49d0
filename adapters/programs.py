"""Running a client's program: lines in, lines out, errors apart, and an end with ours (D14)."""

from __future__ import annotations

import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from agentsdir.adapters import processes
from agentsdir.adapters.contract import Process
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.reading.lines import LINE_CAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_CHUNK = 256 * 1024
_ERRORS = 64 * 1024
_PIPE = 1024 * 1024
"""Bytes of output that are not lost when a program ends before they are read."""
_GRACE = 5.0
"""Seconds that a program has between being asked to end and being ended."""
_PR_SET_PDEATHSIG = 1


class Program:
    """One running program, in a session of its own, so that the terminal's signals are only ours.

    Where the system can, it is asked to end (SIGTERM) when this process dies.

    Args:
        command: the program and its arguments.
        cwd: its working directory.
        environment: all of its environment.

    Raises `ProviderError`: kind ``no-client`` when there is no such program, ``no-folder`` when the
    working directory is gone.
    """

    def __init__(self, command: Sequence[str], *, cwd: str, environment: Mapping[str, str]) -> None:
        if not os.path.isdir(cwd):  # noqa: PTH112, what Popen says of it names the program
            raise ProviderError(
                f"the working directory {cwd} is gone", hint="make it again", kind="no-folder"
            )
        try:
            self._popen = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                preexec_fn=dying_with_parent(),
            )
        except OSError as error:
            raise ProviderError(
                f"cannot start {command[0]!r}: {error.strerror}", kind="no-client"
            ) from error
        self.process = processes.find(self._popen.pid) or Process(self._popen.pid, 0)
        self._outgoing = bytearray()
        self._closing = False
        self._errors = bytearray()
        self._partial = bytearray()
        self._searched = 0  # so far there is no LF in it
        self._over = False
        _widen(self._popen.stdout)
        self._selector = selectors.DefaultSelector()
        for pipe in (self._popen.stdout, self._popen.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ)
        assert self._popen.stdin is not None
        os.set_blocking(self._popen.stdin.fileno(), False)

    @property
    def errors(self) -> str:
        """The end of what it said on standard error so far."""
        assert self._popen.stderr is not None
        with suppress(BlockingIOError):
            while piece := os.read(self._popen.stderr.fileno(), _CHUNK):
                self._hear_error(piece)
        return self._errors.decode(errors="replace").strip()

    def write(self, line: bytes) -> None:
        """Queue a line, LF included; it is written while `lines` reads."""
        self._outgoing += line
        self._watch_input()

    def close_input(self) -> None:
        """Close its standard input once everything queued is written."""
        self._closing = True
        self._watch_input()

    def _watch_input(self) -> None:
        pipe = self._popen.stdin
        assert pipe is not None
        if pipe.closed:
            return
        with suppress(KeyError):
            self._selector.unregister(pipe)
        if self._outgoing:
            self._selector.register(pipe, selectors.EVENT_WRITE)
        elif self._closing:
            pipe.close()

    def lines(self, timeout: float | None = None) -> Iterator[bytes]:
        """Yield each line of its output, the last one even without LF, until it ends.

        A line beyond the cap of the format is cut there. What is left unread can be read by
        another call.

        Args:
            timeout: stop after this many seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._over:
            end = self._partial.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._partial[: end + 1])
                del self._partial[: end + 1]
                self._searched = 0
                yield line
                continue
            self._searched = len(self._partial)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self._exchange(left)
        if self._partial:
            line = bytes(self._partial)
            self._partial.clear()
            yield line

    def _exchange(self, timeout: float | None) -> None:
        """Read what is there and write what can be written; wait for the first of it."""
        for key, _ in self._selector.select(timeout):
            if key.fileobj is self._popen.stdin:
                self._flush()
            elif key.fileobj is self._popen.stderr:
                piece = os.read(key.fd, _CHUNK)
                self._hear_error(piece)
                if not piece:
                    self._selector.unregister(key.fileobj)
            else:
                self._read(key.fd)

    def _hear_error(self, piece: bytes) -> None:
        self._errors += piece
        del self._errors[:-_ERRORS]

    def _read(self, descriptor: int) -> None:
        piece = os.read(descriptor, _CHUNK)
        if not piece:
            self._over = True
        elif len(self._partial) < LINE_CAP:
            self._partial += piece
        elif b"\n" in piece:
            self._partial += piece[piece.index(b"\n") :]

    def _flush(self) -> None:
        pipe = self._popen.stdin
        assert pipe is not None
        try:
            written = os.write(pipe.fileno(), self._outgoing[:_CHUNK])
            del self._outgoing[:written]
        except BlockingIOError:
            return
        except OSError:  # it reads no more; why, its output and its end will say
            self._outgoing.clear()
            self._closing = True
        self._watch_input()

    @property
    def is_over(self) -> bool:
        """Whether its output has ended."""
        return self._over

    def wait(self, timeout: float) -> int | None:
        """Return its exit code, negative for a signal; None if it still runs after `timeout`."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        with suppress(ProcessLookupError):
            self._popen.send_signal(number)

    def end(self, marks: Mapping[str, str]) -> None:
        """End it and all that it started, and let its pipes go; once it is over, do nothing.

        Raises `ProviderError` (kind ``process-left``) for a process that nothing ends.
        """
        started = processes.family([self.process])
        with suppress(subprocess.TimeoutExpired):
            if self._popen.poll() is None:
                self._popen.terminate()  # it may have to end its own commands, and to write
                self._popen.wait(_GRACE)
        self._popen.kill()
        processes.end(marks, started)
        self._popen.wait()
        self._over = True
        self._selector.close()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()


def _widen(pipe: IO[bytes] | None) -> None:
    """Have a pipe hold more, where the system can: a client may exit without waiting for us."""
    widen = getattr(fcntl, "F_SETPIPE_SZ", None)
    if pipe is not None and widen is not None:
        with suppress(OSError):  # the user has too many such pipes
            fcntl.fcntl(pipe, widen, _PIPE)


def dying_with_parent() -> Callable[[], None] | None:
    """Return what a child does, before it is the program, to be told when this process dies."""
    if sys.platform != "linux":
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def run() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it died before it could be tied to
            os._exit(1)

    return run
