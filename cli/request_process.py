"""The process that does one request of the line protocol: a fork of the protocol's own process.

It has the modules of its parent, and everything else is its own: signals, standard streams, working
directory, locks. See docs/protocol.md, "Processes".
"""

from __future__ import annotations

import copy
import os
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import ExitStack, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import orjson

from agentsdir.cli.command_line import run_read
from agentsdir.cli.exits import code_of
from agentsdir.cli.output import print_error
from agentsdir.cli.questions import Answer
from agentsdir.formats import jsontext
from agentsdir.formats.errors import Terminated, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentsdir.cli.command_line import ReadCommand
    from agentsdir.cli.environment import Environment
    from agentsdir.cli.questions import Question
    from agentsdir.cli.requests import Request, Terminal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that the protocol's process passes on, and that end a request."""
_BUFFER = 1024 * 1024
"""Bytes of output that a signal cannot tear: what is printed at once fits, as a rule."""


class Channels(NamedTuple):
    """The parent's ends of a child's pipes: what it prints, its notes, and questions and answers.

    `control` is at its end when the child has ended.
    """

    out: int
    err: int
    control: socket.socket


class RequestProcess(NamedTuple):
    """A child that does a request."""

    pid: int
    channels: Channels


def start(
    env: Environment,
    request: Request,
    command: ReadCommand,
    inherited: Iterable[int],
    bind_to_parent: Callable[[], None] | None,
) -> RequestProcess:
    """Fork a process that does a request.

    Args:
        env: the environment of this process.
        command: what `request.command_line` was read as.
        inherited: descriptors that the child closes: this process's ends of other children's pipes.
        bind_to_parent: called in the child, which then ends when this process does.

    Raises `OSError` if the system refuses.
    """
    with ExitStack() as on_error:
        out = _pipe(on_error)
        err = _pipe(on_error)
        control = socket.socketpair()
        on_error.callback(control[0].close)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            pid = os.fork()
            if not pid:
                others = (out[0], err[0], control[0].fileno(), *inherited)
                _be_child(
                    env, request, command, (out[1], err[1], control[1]), others, bind_to_parent
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            control[1].close()
        on_error.pop_all()
    os.close(out[1])
    os.close(err[1])
    for one in (out[0], err[0], control[0].fileno()):
        os.set_blocking(one, False)
    return RequestProcess(pid, Channels(out[0], err[0], control[0]))


def _pipe(on_error: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        on_error.callback(os.close, end)
    return ends


def _be_child(
    env: Environment,
    request: Request,
    command: ReadCommand,
    ends: tuple[int, int, socket.socket],
    others: Iterable[int],
    bind_to_parent: Callable[[], None] | None,
) -> NoReturn:
    """Do the request in the new process, and exit with its code."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        _set_handlers()
        if bind_to_parent is not None:
            bind_to_parent()
        os.setpgid(0, 0)  # so that the terminal's Ctrl-C reaches it through the parent, once
        for one in others:
            os.close(one)
        own = _environment(env, request, *ends)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        code = _do(request, command, own)
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException:  # noqa: BLE001, the parent's stack must not be unwound in a second process
        traceback.print_exc()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the exit code is final
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _do(request: Request, command: ReadCommand, env: Environment) -> int:
    try:
        if request.cwd:
            _enter(env, request.cwd)
    except UsageError as error:
        print_error(env, error, as_json=True)
        return code_of(error)
    return run_read(command, env)


def _set_handlers() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_terminated)


def _raise_terminated(number: int, _frame: Any) -> NoReturn:
    raise Terminated(128 + number)


def _environment(
    env: Environment, request: Request, out: int, err: int, control: socket.socket
) -> Environment:
    """Make the pipes this process's standard streams; return the environment of the request."""
    given = _input(request.stdin)
    for number, descriptor in enumerate((given, out, err)):
        os.dup2(descriptor, number)
    for descriptor in {given, out, err} - {0, 1, 2}:
        os.close(descriptor)
    stdin = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115, open until the end
    sys.stdout = _Output(1, isatty=request.terminal is not None)
    sys.stderr = _Output(2)
    own = copy.copy(env)
    own.stdin, own.stdout, own.stderr = stdin, sys.stdout, sys.stderr
    own.ask = _Asker(control)
    own.terminal = Path(os.devnull)
    own.framed = True
    if request.terminal is not None:
        own.variables = _variables(env, request.terminal)
    return own


def _enter(env: Environment, folder: str) -> None:
    """Make a folder the working directory. Raises `UsageError` if that cannot be."""
    try:
        os.chdir(env.cwd / folder)
    except OSError as error:
        raise UsageError(f"cannot go to {folder}: {error.strerror}", kind="no-folder") from error
    env.cwd = Path.cwd()


def _input(text: str | None) -> int:
    """Return a descriptor of a file that holds a text, or of an empty device."""
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        return os.dup(file.fileno())


def _variables(env: Environment, terminal: Terminal) -> MappingProxyType[str, str]:
    """Return the variables with which text is made for the client's terminal."""
    colour = {"CLICOLOR_FORCE": "1"} if terminal.color else {"NO_COLOR": "1"}
    columns = {"COLUMNS": str(terminal.columns), "AGENTSDIR_PAGER": ""}
    kept = {k: v for k, v in env.variables.items() if k not in ("CLICOLOR_FORCE", "NO_COLOR")}
    return MappingProxyType({**kept, **columns, **colour})


class _Output(TextIOWrapper):
    """An output stream whose buffer a signal does not tear."""

    def __init__(self, descriptor: int, *, isatty: bool = False) -> None:
        raw = FileIO(descriptor, "wb", closefd=False)
        super().__init__(BufferedWriter(raw, _BUFFER), "utf-8", "backslashreplace", newline="\n")
        self._isatty = isatty

    def isatty(self) -> bool:
        """Return whether the client wants what a terminal would get."""
        return self._isatty


class _Asker:
    """Asks the client a question through the parent, and waits for the answer."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lines = control.makefile("rb")

    def __call__(self, question: Question) -> Answer | None:
        """Return the answer; None if there will be none."""
        self._tell({"question": question.as_json()})
        try:
            return read_answer(self._lines.readline())
        finally:
            self._tell({"closed": True})

    def _tell(self, value: dict[str, Any]) -> None:
        line = orjson.dumps(jsontext.clean(value, set())) + b"\n"
        with suppress(BrokenPipeError):
            self._control.sendall(line)


def answer_line(answer: Answer | None) -> bytes:
    """Return an answer as a child reads it; None says that there will be none."""
    return orjson.dumps(None if answer is None else answer._asdict()) + b"\n"


def read_answer(line: bytes) -> Answer | None:
    """Return the answer that `answer_line` wrote; None for the end of the input, too."""
    given = orjson.loads(line) if line.endswith(b"\n") else None
    return None if given is None else Answer(**given)
