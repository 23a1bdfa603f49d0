"""A turn on a terminal: its work on standard error, its answer on standard output."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from agentsdir.cli.answer_text import AnswerPiece
from agentsdir.cli.cells import encoding_of
from agentsdir.cli.colour import style_of
from agentsdir.cli.status_line import DEFAULT_WIDTH, StatusLine
from agentsdir.cli.turn_view import TurnLine, TurnView

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment
    from agentsdir.cli.turn_printer import AnswerPrinter
    from agentsdir.engine.result import TurnResult
    from agentsdir.formats.blocks import StreamEvent

_SHOWN_AFTER = 0.3
"""Seconds: the status of a shorter turn would only flicker."""


class TurnScreen:
    """Shows turns while they run: lines of work, what happens now, and through `answer` the text.

    `folder` is the agent's working directory; paths in it are shown as they are seen from there.

    Args:
        answer: prints the text of the answer on standard output.
    """

    def __init__(self, env: Environment, answer: AnswerPrinter) -> None:
        self._env = env
        self.folder = ""
        self._answer = answer
        self._style = style_of(env, stream=env.stderr)
        self._encoding = encoding_of(env)
        self._view: TurnView | None = None
        self._waiting: TurnView | None = None  # while other turns run
        self._began = 0.0
        self._is_busy = False
        self._ends_work = False  # the last thing that was shown is a line of work
        self.status = StatusLine.of(env)

    def _viewed(self) -> TurnView:
        """Return the view of the turn that runs, as wide as the terminal is now."""
        if self._view is None:
            self._began, self._waiting = time.monotonic(), None
            self._view = TurnView(DEFAULT_WIDTH, self._encoding, self._began, self.folder)
        if self.status is not None:
            self._view.width = self.status.width
        return self._view

    def take(self, event: StreamEvent) -> None:
        """Show what an event adds."""
        self._is_busy = True
        try:
            shown = self._viewed().take(event, time.monotonic())
            pieces = [one for one in shown if isinstance(one, AnswerPiece) and one.text]
            first = shown.index(pieces[0]) if pieces else 0
            self._show([one for one in shown[:first] if isinstance(one, TurnLine)])
            if pieces and self._env.stdout.isatty():
                self._erase()
                if self._ends_work and pieces[0].begins and not self._answer.has_printed:
                    self._write("")
                self._ends_work = False
            self._answer.take(event)
            self._show([one for one in shown[first:] if isinstance(one, TurnLine)])
        finally:
            self._is_busy = False

    def leave_out(self, use: str, seconds: float) -> None:
        """Leave out of the times that a question about a call waited for its answer."""
        self._viewed().leave_out(use, seconds)

    def tick(self) -> None:
        """Draw what happens now. It may interrupt any other method."""
        if self._is_busy or self.status is None:
            return
        view, now = self._viewed(), time.monotonic()
        # Below a line that is not complete there is no place for it.
        if now >= self._began + _SHOWN_AFTER and not self._answer.is_in_line:
            self.status.draw(self._style(view.status(now), "faint"))

    def wait(self) -> None:
        """Draw that other turns run, before the one that is shown, or after it; as `tick`."""
        if self._is_busy or self.status is None or self._view is not None:
            return
        now = time.monotonic()
        if self._waiting is None:
            self._waiting = TurnView(DEFAULT_WIDTH, self._encoding, now)
            self._began = now
        self._waiting.width = self.status.width
        if now >= self._began + _SHOWN_AFTER and not self._answer.is_in_line:
            text = self._waiting.waiting(now, "other turns run")
            self.status.draw(self._style(text, "faint"))

    def end_turn(self, result: TurnResult | None = None) -> None:
        """Show the end of the turn that runs; the next event is one of the next turn."""
        if self._view is None:
            self._erase()
            return
        self._is_busy = True
        try:
            usage, cost = (result.usage, result.cost) if result else (None, None)
            self._show(self._viewed().finish(time.monotonic(), usage, cost))
            self._view = None
        finally:
            self._is_busy = False

    def _show(self, lines: list[TurnLine]) -> None:
        for line in lines:
            self._erase()
            self._answer.end_line()
            if self._env.stdout.isatty() and not self._ends_work and self._answer.has_printed:
                self._write("")
            style = self._style
            self._write("".join(style(p.text, p.style) if p.style else p.text for p in line.parts))
            self._ends_work = True

    def _write(self, line: str) -> None:
        with suppress(OSError):  # stderr is closed; the answer goes on
            self._env.stderr.write(line + "\n")
            self._env.stderr.flush()

    def _erase(self) -> None:
        if self.status is not None:
            self.status.erase(of_others=not self._answer.is_in_line)
