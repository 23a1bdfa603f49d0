"""`list --watch`: the agents at a terminal, redrawn as they change."""

from __future__ import annotations

import os
import select
import termios
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from agentsdir.cli.agent_table import AgentCells, agent_table, counted
from agentsdir.cli.cells import cut
from agentsdir.cli.colour import style_of
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import screen_width
from agentsdir.engine.listing import RUNNING, WAITING
from agentsdir.engine.watch import WatchedAgents
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.colour import Style
    from agentsdir.cli.environment import Environment
    from agentsdir.engine.listing import Wanted
    from agentsdir.engine.watch import CurrentList

INTERVAL = 1.0
"""Seconds between two looks, unless a look takes more than a twentieth of that."""
_SLICE = 0.2
"""Seconds after which a new size of the terminal is noticed."""
_OWN_SCREEN, _FORMER_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_TOP, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_BELL = "\x07"
_LEAVE = b"qQ\x04"


def watch_agents(env: Environment, wanted: Wanted, *, color: str) -> Exit:
    """Show agents at the terminal until q is typed.

    Raises `UsageError` without a terminal that can be redrawn.
    """
    if not env.stdout.isatty() or env.variables.get("TERM", "dumb") in ("", "dumb"):
        raise UsageError(
            "--watch needs a terminal that can be redrawn",
            hint="a program can call `agentsdir list --json` again",
        )
    env.layout.check_version(writing=False)
    watch = WatchedAgents(env.layout, wanted)
    with _screen(env) as keys:
        screen = _Screen(env, watch, style_of(env, color), keys)
        while True:
            begun = time.monotonic()
            look = watch.look(env.now())
            pause = max(INTERVAL, 20 * (time.monotonic() - begun))
            if look.began_to_wait or look.finished:
                env.stdout.write(_BELL)
            if not screen.show(look, begun + pause):
                return Exit.OK


class _Screen:
    """Draws what a look found, where that is not there yet."""

    def __init__(
        self, env: Environment, watch: WatchedAgents, style: Style, keys: int | None
    ) -> None:
        self._env = env
        self._watch = watch
        self._style = style
        self._keys = keys
        self._drawn: tuple[tuple[int, int], list[str]] | None = None

    def show(self, look: CurrentList, end: float) -> bool:
        """Show a look until a time of the monotonic clock; return False once q is typed."""
        is_new = True
        while (left := end - time.monotonic()) > 0:
            size = (screen_width(self._env), _height(self._env))
            if is_new or self._drawn is None or size != self._drawn[0]:
                is_new = False
                self._draw(size, _lines(self._env, self._watch, look, self._style, *size))
            if self._keys is None:
                time.sleep(min(left, _SLICE))
            elif select.select([self._keys], [], [], min(left, _SLICE))[0]:
                typed = os.read(self._keys, 64)
                if not typed or any(key in _LEAVE for key in typed):
                    return False
        return True

    def _draw(self, size: tuple[int, int], lines: list[str]) -> None:
        if self._drawn != (size, lines):
            self._drawn = size, lines
            # The terminal makes CR LF of LF.
            shown = "\n".join(line + _REST_OF_LINE for line in lines)
            self._env.stdout.write(_TOP + shown + _REST_OF_SCREEN)
        self._env.stdout.flush()


def _lines(
    env: Environment,
    watch: WatchedAgents,
    look: CurrentList,
    style: Style,
    width: int,
    height: int,
) -> list[str]:
    """Return the lines of the screen, narrower than it is: the last column may wrap."""
    room = max(height - 3, 1)
    cells = AgentCells(env)
    rows = [cells.of(row) for row in watch.rows(look.agents[:room])]
    working = [one.state for one in look.agents]
    said = ", ".join(
        (
            counted(len(look.agents), "agent"),
            f"{working.count(RUNNING)} running",
            f"{working.count(WAITING)} waiting",
        )
    )
    head = cut(f"{said}; q leaves", width - 1)
    shown = agent_table([("", row) for row in rows], look.short, width - 1).lines(style)
    more = len(look.agents) - len(rows)
    return [
        style(head, "faint"),
        *(shown if rows else ()),
        *([style(cut(f"… {more} more", width - 1), "faint")] if more else ()),
    ][:height]


def _height(env: Environment) -> int:
    with suppress(OSError):
        if lines := os.get_terminal_size(env.stdout.fileno()).lines:
            return lines
    return 24


@contextmanager
def _screen(env: Environment) -> Iterator[int | None]:
    """Give the block a screen of its own, and the descriptor of the keyboard if there is one.

    Keys come one by one and are not shown; Ctrl-C is a signal as ever. What was on the terminal is
    there again afterwards.
    """
    keys = env.stdin.fileno() if env.stdin.isatty() else None
    before = termios.tcgetattr(keys) if keys is not None else None
    try:
        if keys is not None:
            mode = termios.tcgetattr(keys)
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            # A process that is stopped could not give the terminal back.
            mode[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(keys, termios.TCSADRAIN, mode)
        env.stdout.write(_OWN_SCREEN)
        yield keys
    finally:
        with suppress(OSError):
            env.stdout.write(_FORMER_SCREEN)
            env.stdout.flush()
        if keys is not None and before is not None:
            with suppress(termios.error):
                termios.tcsetattr(keys, termios.TCSADRAIN, before)
