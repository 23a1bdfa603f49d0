"""Runs one command line of agentsdir in this process, on a fixed clock and with fixed ids.

The only module of this folder that imports agentsdir: where modules move, this is what changes.
"""

from __future__ import annotations

import fcntl
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment

PROCESS = (sys.executable, "-c", "from agentsdir.cli.main import main; main()")
"""The program in a process of its own."""

WIDTH = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
"""Help is wrapped at the width of the terminal, which the command-line library asks for itself."""


class Done(NamedTuple):
    """What one command left on its streams, and its exit code."""

    code: int
    out: bytes
    err: bytes


class Clock:
    """Times and ids of one command: both count calls, and begin anew with each command.

    A command that asks once more than it did changes its own times and ids, not those of the
    commands after it.
    """

    def __init__(self, command: int) -> None:
        self._command = command
        self._calls = {"now": 0, "agent": 0, "session": 0}

    def _next(self, what: str) -> int:
        self._calls[what] += 1
        return self._calls[what]

    def now(self) -> str:
        """Return the time: a minute later with each command, a millisecond with each call."""
        hours, minutes = divmod(self._command, 60)
        return f"2026-01-02T{hours:02}:{minutes:02}:00.{self._next('now'):03}000Z"

    def agent(self) -> str:
        """Return an id of 24 characters: its beginning and its end tell it from all others."""
        call = self._next("agent")
        begins = "abcdefghijklmnopqrstuvwxyz"[call % 26]
        return f"{begins}{self._command:02}{'0' * 15}{self._command:03}{call:03}"

    def session(self) -> str:
        """Return a uuid4 in 32 hexadecimal digits."""
        return f"{self._command:08x}{self._next('session'):04x}40008{0:015x}"


class _Stream(io.TextIOWrapper):
    def __init__(self, *, tty: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty

    @property
    def data(self) -> bytes:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


class _Starting:
    """Runs other agents' messages in this process: when they are waited for, or afterwards."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.begun: list[_Started] = []

    def __call__(self, paths: Any, message_id: str, *, alone: bool) -> Any:
        env = self._env
        arguments = ["--root", str(env.layout.root), "send", paths.id, "--no-message"]
        arguments += ["--message-id", message_id, "--wait", "-1", *(["--alone"] if alone else [])]
        marks = ("AGENTSDIR_AGENT", "AGENTSDIR_TURN")
        variables = {k: v for k, v in env.variables.items() if k not in marks}
        stderr = env.stderr if alone else _Stream(tty=False)
        own = Environment(
            io.BytesIO(), _Stream(tty=False), stderr, variables, env.cwd, env.home, login="me"
        )
        own.overrides = env.overrides
        started = _Started(lambda: int(run(arguments, own)))
        self.begun.append(started)
        return started


class _Started:
    """A command that was started, and runs when its end is waited for."""

    def __init__(self, work: Callable[[], int]) -> None:
        self._work = work
        self._code: int | None = None

    def wait(self) -> int:
        if self._code is None:
            self._code = self._work()
        return self._code

    def interrupt(self) -> None:
        """Nothing runs beside the command that would ask for this."""


def command(
    arguments: Sequence[str],
    number: int,
    *,
    cwd: Path,
    home: Path,
    variables: Mapping[str, str],
    stdin: bytes | None = None,
    tty: bool = False,
) -> Done:
    """Run one command line and all that it starts.

    Args:
        number: which command it is, from 0: times and ids go by it.
        stdin: what is piped in; None for an empty standard input that is no pipe.
        tty: stdout and stderr are a terminal.
    """
    out, err = _Stream(tty=tty), _Stream(tty=tty)
    source = _source(stdin)
    env = Environment(source, out, err, variables, cwd, home, login="me")
    env.terminal = Path("/nowhere/tty")
    clock, starting = Clock(number), _Starting(env)
    env.overrides = {"now": clock.now, "ids": clock, "start_turn": starting}
    before = {name: os.environ.get(name) for name in WIDTH}
    os.environ.update(WIDTH)
    try:
        # Help is printed by the command-line library, to the streams of the process.
        with redirect_stdout(out), redirect_stderr(err):
            code = int(run(list(arguments), env))
            for started in starting.begun:  # grows while they run
                started.wait()
    finally:
        source.close()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return Done(code, out.data, err.data)


def _source(data: bytes | None) -> BinaryIO:
    """Return a file of the system to read from: commands ask what their standard input is."""
    if data is None:
        return open(os.devnull, "rb")  # noqa: PTH123
    read, write = os.pipe()
    with open(write, "wb") as stream:  # noqa: PTH123
        # A pipe holds 64 KiB unless it is asked for more; no process reads yet.
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, max(len(data), 1))
        stream.write(data)
    return open(read, "rb")  # noqa: PTH123
