"""Asking the person at the terminal a yes-or-no question.

See docs/configuration.md, "Questions at the terminal".

Input that was typed before a question could be read must not answer it: a terminal keeps such
input, and hands it to the next reader.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UNREAD = 0.5
"""Seconds in which a person cannot have read a question: input from then is thrown away."""
_TOGETHER = 0.05
"""Seconds between two lines that a paste brings, but no person types."""
_LOOK_EVERY = 0.1
_SAY_AFTER = 1.0


def ask(
    terminal: Path, lines: list[str], prompt: str, tell: Callable[[str], None], *, whose: str = ""
) -> bool:
    """Show a question at a terminal, and return whether the answer is yes.

    Only one process asks at a terminal at a time. A process in the background waits until its job
    is in the foreground.

    Args:
        lines: the question. Each is shown as one line, with control characters as escapes.
        prompt: what stands before the answer.
        tell: is given a sentence when this has to wait.
        whose: who asks, for that sentence.

    Raises `OSError` where the terminal cannot be opened, is closed, or cannot be read from because
    no shell can bring this job to the foreground.
    """
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        with _without_stopping():
            while True:
                _wait_for_foreground(descriptor, tell, whose)
                with _alone(descriptor, tell, whose):
                    answer = _answer(descriptor, lines, prompt)
                if answer is not None:
                    return answer
    finally:
        os.close(descriptor)


@contextmanager
def _without_stopping() -> Iterator[None]:
    """Have reading in the background fail, instead of stopping this process with its locks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTIN, signal.SIGTTOU))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_foreground(descriptor: int) -> bool:
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:  # not the terminal of this session, which has no job control then
        return True


def _wait_for_foreground(descriptor: int, tell: Callable[[str], None], whose: str) -> None:
    said = False
    while not _in_foreground(descriptor):
        if os.getsid(os.getppid()) != os.getsid(0):
            raise OSError(0, "this job is in the background, and no shell can bring it back")
        if not said:
            tell(f"{whose} has a question: bring this job to the foreground (`fg`)")
            said = True
        time.sleep(_LOOK_EVERY)


@contextmanager
def _alone(descriptor: int, tell: Callable[[str], None], whose: str) -> Iterator[None]:
    """Hold the lock of the terminal's device, so that no other process asks meanwhile."""
    try:
        lock = os.open(_device(descriptor), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # another user's terminal, as after `su`: nothing there can be locked
        yield
        return
    try:
        said_at = time.monotonic() + _SAY_AFTER
        while not _try_lock(lock):
            if time.monotonic() >= said_at:
                tell(f"{whose} waits with a question: another one is open at this terminal")
                said_at = float("inf")
            time.sleep(_LOOK_EVERY)
        yield
    finally:
        os.close(lock)


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _device(descriptor: int) -> str:
    """Return the path of the terminal itself; `/dev/tty` is another one in each session."""
    for one in (descriptor, 2, 1, 0):
        try:
            name = os.ttyname(one)
        except OSError:
            continue
        if name != "/dev/tty":
            return name
    raise FileNotFoundError(2, "the terminal has no name")


def _answer(descriptor: int, lines: list[str], prompt: str) -> bool | None:
    """Ask once; None when this job is not in the foreground any more."""
    _write(descriptor, "\n" + "".join(one_line(line) + "\n" for line in lines))
    time.sleep(UNREAD)
    while True:
        # Also half a line that has no Enter yet, which the terminal keeps as well.
        termios.tcflush(descriptor, termios.TCIFLUSH)
        _write(descriptor, prompt)
        line = _read_line(descriptor)
        if line is None:
            return None
        if not select.select([descriptor], [], [], _TOGETHER)[0]:
            return line.strip().lower() in (b"y", b"yes")
        _write(descriptor, "Several lines came at once, which is no answer.\n")


def _read_line(descriptor: int) -> bytes | None:
    """Return the next line, or what stands before the end of input; None in the background."""
    said = b""
    while not said.endswith((b"\n", b"\r")):
        ready = select.select([descriptor], [], [], _LOOK_EVERY)[0]
        if not _in_foreground(descriptor):
            return None
        if ready:
            piece = os.read(descriptor, 4096)
            if not piece:
                return said
            said += piece
    return said


def _write(descriptor: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]
