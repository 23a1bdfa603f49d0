"""A yes-or-no question at the terminal (docs/configuration.md, "Questions at the terminal").

Input that was typed before the question could be read must not answer it. A terminal keeps such
input and gives it to the next reader, so it is thrown away first.
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

READING_TIME = 0.5
"""Seconds in which a person cannot have read a question: input of that time is thrown away."""
_PASTE_GAP = 0.05
"""Seconds: two lines that come within this time were pasted, not typed."""
_POLL_INTERVAL = 0.1
_NOTIFY_AFTER = 1.0
"""Seconds of waiting for another question before the user is notified."""


def confirm(
    terminal: Path, lines: list[str], prompt: str, notify: Callable[[str], None], *, asker: str
) -> bool:
    """Show a question at a terminal, and return whether the answer is yes.

    Only one process asks at a terminal at a time. A process in the background waits until its job
    is in the foreground.

    Args:
        lines: the question. Each is shown as one line, with control characters as escapes.
        prompt: the text in front of the answer.
        notify: called with a sentence when the question has to wait.
        asker: the subject of that sentence.

    Raises `OSError` if the terminal cannot be opened, is closed, or cannot be read from because no
    shell can bring this job to the foreground.
    """
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        with _no_stop_signals():
            while True:
                _wait_for_foreground(descriptor, notify, asker)
                with _terminal_lock(descriptor, notify, asker):
                    answer = _answer(descriptor, lines, prompt)
                if answer is not None:
                    return answer
    finally:
        os.close(descriptor)


@contextmanager
def _no_stop_signals() -> Iterator[None]:
    """Make a read in the background fail: a stopped process would keep its locks."""
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


def _wait_for_foreground(descriptor: int, notify: Callable[[str], None], asker: str) -> None:
    notified = False
    while not _in_foreground(descriptor):
        if os.getsid(os.getppid()) != os.getsid(0):
            raise OSError(0, "this job is in the background, and no shell can bring it back")
        if not notified:
            notify(f"{asker} has a question: bring this job to the foreground (`fg`)")
            notified = True
        time.sleep(_POLL_INTERVAL)


@contextmanager
def _terminal_lock(descriptor: int, notify: Callable[[str], None], asker: str) -> Iterator[None]:
    """Lock the terminal's device, so that no other process asks meanwhile."""
    try:
        lock = os.open(_device(descriptor), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:  # another user's terminal, as after `su`: nothing there can be locked
        yield
        return
    try:
        notify_at = time.monotonic() + _NOTIFY_AFTER
        while not _try_lock(lock):
            if time.monotonic() >= notify_at:
                notify(f"{asker} waits with a question: another one is open at this terminal")
                notify_at = float("inf")
            time.sleep(_POLL_INTERVAL)
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
    """Return the terminal's own path, since `/dev/tty` names another terminal in each session."""
    for one in (descriptor, 2, 1, 0):
        try:
            name = os.ttyname(one)
        except OSError:
            continue
        if name != "/dev/tty":
            return name
    raise FileNotFoundError(2, "the terminal has no name")


def _answer(descriptor: int, lines: list[str], prompt: str) -> bool | None:
    """Ask once, and return the answer; None if this job is no longer in the foreground."""
    _write(descriptor, "\n" + "".join(one_line(line) + "\n" for line in lines))
    time.sleep(READING_TIME)
    while True:
        # Also half a line that has no Enter yet, which the terminal keeps as well.
        termios.tcflush(descriptor, termios.TCIFLUSH)
        _write(descriptor, prompt)
        line = _read_line(descriptor)
        if line is None:
            return None
        if not select.select([descriptor], [], [], _PASTE_GAP)[0]:
            return line.strip().lower() in (b"y", b"yes")
        _write(descriptor, "Several lines came at once, which is no answer.\n")


def _read_line(descriptor: int) -> bytes | None:
    """Return the next line, or the rest before the end of input; None in the background."""
    line = b""
    while not line.endswith((b"\n", b"\r")):
        ready = select.select([descriptor], [], [], _POLL_INTERVAL)[0]
        if not _in_foreground(descriptor):
            return None
        if ready:
            piece = os.read(descriptor, 4096)
            if not piece:
                return line
            line += piece
    return line


def _write(descriptor: int, text: str) -> None:
    data = text.encode(errors="replace")
    while data:
        data = data[os.write(descriptor, data) :]
