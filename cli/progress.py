"""How far a long command is, on the terminal: a bar, or a line that says for how long it works."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agentsdir.cli.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.cli.environment import Environment

DELAY = 1.0
"""Seconds that a command works before it shows a bar."""
_REFRESHED = 0.1  # seconds between two states of the bar


@contextmanager
def progress(
    environment: Environment, total: int, *, delay: float = DELAY
) -> Iterator[Callable[[int], None]]:
    """Give the block a function that takes how many bytes were done, for a bar on stderr.

    It is shown where stderr is a terminal and stdout is not: else what is printed shows how far the
    command is. It is gone when the block ends, so nothing may be printed on stderr within.

    Args:
        environment: the streams.
        total: how many bytes there are to do; nothing is shown of none.
        delay: seconds until the bar is shown.
    """
    if not total or environment.stdout.isatty() or not environment.stderr.isatty():
        yield lambda _: None
        return
    bar = _Bar(environment, total, time.monotonic() + delay)
    try:
        yield bar.advance
    finally:
        bar.stop()


@contextmanager
def working(
    environment: Environment, doing: Callable[[], str], *, delay: float = DELAY
) -> Iterator[None]:
    """Say on stderr, each second within the block, what the command does and for how long.

    For work whose size is not known before. It is shown where stderr is a terminal, also while
    stdout is one: what is printed there goes into `Environment.without_status`.

    Args:
        doing: returns a few words, such as "checked 12 agents". A signal handler calls it.
        delay: seconds until the line is shown.
    """
    line = StatusLine.of(environment)
    if line is None:
        yield
        return
    began = time.monotonic()

    def draw(*_: object) -> None:
        text = f"{doing()} · {time.monotonic() - began:.0f} s"
        line.draw(text[: max(line.width - 2, 0)])

    before = signal.signal(signal.SIGALRM, draw)
    signal.setitimer(signal.ITIMER_REAL, delay, 1)
    environment.status_line = line
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        line.erase()
        environment.status_line = None


class _Bar:
    def __init__(self, environment: Environment, total: int, show_at: float) -> None:
        self._environment = environment
        self._total = total
        self._done = 0
        self._next = show_at
        self._shown: Any = None

    def advance(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _REFRESHED
            self._show()

    def _show(self) -> None:
        if self._shown is None:
            self._shown = _made(self._environment)
            self._shown.start()
            self._shown.add_task("", total=self._total)
        self._shown.update(self._shown.task_ids[0], completed=self._done)
        self._shown.refresh()

    def stop(self) -> None:
        if self._shown is not None:
            self._shown.stop()


def _made(environment: Environment) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    return Progress(
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(file=environment.stderr),
        # It would be refreshed by a thread, and this process may start others.
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
