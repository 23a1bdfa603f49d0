"""The processes that do the requests of the line protocol: forks of the protocol's own process.

Such a process does one request at a time, with signals, standard streams, working directory and
locks of its own. After one that succeeded it can do another; what fails is its last one. See
docs/protocol.md, "Processes".
"""

from __future__ import annotations

import copy
import os
import resource
import select
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import ExitStack, suppress
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

import orjson

from agentsdir.adapters.protocol import never
from agentsdir.cli.command_line import read_command, run_read
from agentsdir.cli.exits import code_of
from agentsdir.cli.output import print_error
from agentsdir.cli.questions import Answer
from agentsdir.cli.requests import parse_request
from agentsdir.formats import jsontext
from agentsdir.formats.errors import AgentsdirError, Terminated, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentsdir.cli.command_line import ReadCommand
    from agentsdir.cli.environment import Environment
    from agentsdir.cli.questions import Question
    from agentsdir.cli.requests import ClientTerminal, Request

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that the protocol's process passes on, and that end a request."""
HANDED_OVER = 64 * 1024
"""Bytes of a request or an answer that a child is given; what a socket takes at once."""
_LOOK_EVERY = 200
"""Milliseconds between two looks whether the client that asks has ended."""
_MOST_MEMORY = 256 * 1024
"""KiB that a child may have needed and do another request."""
_BUFFER = 1024 * 1024
"""Bytes of output that a signal cannot tear: what is printed at once fits, as a rule."""


class RequestProcess:
    """The parent's side of a child that does requests, one after another.

    Attributes:
        control: of questions and answers, and of requests; at its end when the child has ended.
        out, err: what the child prints.
        lines: of both, as long as they are open, the beginning of a line.
        request: what it does; None while it waits for one.
        question: the id of its question; empty for none.
        number: of that question, as the child counts its own.
        signalled: whether it was sent a signal, so that it does no other request.
    """

    def __init__(
        self, pid: int, out: int, err: int, control: socket.socket, request: Request
    ) -> None:
        self.pid = pid
        self.out, self.err, self.control = out, err, control
        self.lines = {out: bytearray(), err: bytearray()}
        self.said = bytearray()
        self.request: Request | None = request
        self.question = ""
        self.number = 0
        self.signalled = False

    @property
    def descriptors(self) -> list[int]:
        """The parent's ends of its pipes."""
        return [*self.lines, self.control.fileno()]

    def take_on(self, request: Request, line: bytes) -> bool:
        """Give it the next request; return False if it cannot have it.

        Args:
            line: the request as the client wrote it, without its LF.
        """
        if len(line) > HANDED_OVER:
            return False
        try:
            self.control.sendall(line + b"\n")
        except OSError:  # it was killed
            return False
        self.request = request
        return True

    def kill(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.signalled = True
        os.kill(self.pid, number)


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
    made = RequestProcess(pid, out[0], err[0], control[0], request)
    for one in made.descriptors:
        os.set_blocking(one, False)
    return made


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
    """Do requests in the new process, the first one given, until one of them is its last."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        _set_handlers()
        if bind_to_parent is not None:
            bind_to_parent()
        os.setpgid(0, 0)  # so that the terminal's Ctrl-C reaches it through the parent, once
        for one in others:
            os.close(one)
        out, err, control = ends
        _replace(1, out)
        _replace(2, err)
        lines = _ControlLines(control)
        ask = _Asker(control, lines)
        while True:
            own = _environment(env, request, ask)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            code = _do(request, command, own)
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
            if code or request.cwd or ask.left_one or _needed_much():
                break
            _flush()
            control.sendall(b'{"done":true}\n')
            line = lines.next()
            if line is None:  # the parent needs it no more
                break
            request = parse_request(line)
            read = read_command(request.command_line())
            assert not isinstance(read, str)
            command = read
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException:  # noqa: BLE001, the parent's stack must not be unwound in a second process
        traceback.print_exc()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the exit code is final
    _flush()
    os._exit(code)


def _replace(number: int, descriptor: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def _needed_much() -> bool:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MOST_MEMORY


def _do(request: Request, command: ReadCommand, env: Environment) -> int:
    try:
        _replace(0, _input(request.stdin))
        if request.cwd:
            _enter(env, request.cwd)
    except AgentsdirError as error:
        print_error(env, error, as_json=True)
        return code_of(error)
    return run_read(command, env)


def _set_handlers() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_terminated)


def _raise_terminated(number: int, _frame: Any) -> NoReturn:
    raise Terminated(128 + number)


def _environment(env: Environment, request: Request, ask: _Asker) -> Environment:
    """Return the environment of a request, with standard streams of its own."""
    sys.stdout = _Output(1, isatty=request.terminal is not None)
    sys.stderr = _Output(2, line_buffering=True)
    own = copy.copy(env)
    own.stdin = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115, open until the end
    own.stdout, own.stderr = sys.stdout, sys.stderr
    own.ask = ask
    own.terminal = Path(os.devnull)
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
    """Return a descriptor of a file that holds a text, or of an empty device.

    Raises `AgentsdirError` if there is no room for the file.
    """
    if text is None:
        return os.open(os.devnull, os.O_RDONLY)
    try:
        with tempfile.TemporaryFile() as file:
            file.write(text.encode())
            file.seek(0)
            return os.dup(file.fileno())
    except OSError as error:
        raise AgentsdirError(
            f"cannot write standard input to a temporary file: {error.strerror}",
            hint="TMPDIR names another folder for it",
            kind="no-stdin",
        ) from error


def _variables(env: Environment, terminal: ClientTerminal) -> MappingProxyType[str, str]:
    """Return the variables with which text is made for the client's terminal."""
    colour = {"CLICOLOR_FORCE": "1"} if terminal.color else {"NO_COLOR": "1"}
    columns = {"COLUMNS": str(terminal.columns), "AGENTSDIR_PAGER": ""}
    kept = {k: v for k, v in env.variables.items() if k not in ("CLICOLOR_FORCE", "NO_COLOR")}
    return MappingProxyType({**kept, **columns, **colour})


class _Output(TextIOWrapper):
    """An output stream whose buffer a signal does not tear."""

    def __init__(
        self, descriptor: int, *, isatty: bool = False, line_buffering: bool = False
    ) -> None:
        buffer = BufferedWriter(FileIO(descriptor, "wb", closefd=False), _BUFFER)
        super().__init__(buffer, "utf-8", "backslashreplace", "\n", line_buffering)
        self._isatty = isatty

    def isatty(self) -> bool:
        """Return whether the client wants what a terminal would get."""
        return self._isatty


class _Asker:
    """Asks the client a question through the parent, and waits for the answer."""

    def __init__(self, control: socket.socket, lines: _ControlLines) -> None:
        self._control = control
        self._lines = lines
        self._number = 0
        self.left_one = False
        """Whether it stopped waiting for an answer, which may still come."""

    def __call__(self, question: Question) -> Answer | None:
        """Return the answer; None if there will be none, or the question is void."""
        self._number += 1
        self._tell({"question": question.as_json(), "number": self._number})
        try:
            while (line := self._lines.next(question.is_void)) is not None:
                number, answer = read_answer(line)
                if number == self._number:  # else it came too late for an earlier question
                    return answer
            self.left_one = True
            return None
        finally:
            self._tell({"closed": True})

    def _tell(self, value: dict[str, Any]) -> None:
        line = orjson.dumps(jsontext.clean(value, set())) + b"\n"
        with suppress(BrokenPipeError):
            self._control.sendall(line)


class _ControlLines:
    """Lines that the parent writes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._held = bytearray()

    def next(self, is_void: Callable[[], bool] = never) -> bytes | None:
        """Return the next line; None at the end, and once `is_void` returns True."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while (end := self._held.find(b"\n")) < 0:
            if poll.poll(None if is_void is never else _LOOK_EVERY):
                piece = self._control.recv(HANDED_OVER)
                if not piece:
                    return None
                self._held += piece
            elif is_void():
                return None
        line = bytes(self._held[: end + 1])
        del self._held[: end + 1]
        return line


def answer_line(number: int, answer: Answer | None) -> bytes:
    """Return the answer to a child's question, as the child reads it.

    Args:
        number: which question of the child it is.
        answer: None says that there will be none.
    """
    return orjson.dumps([number, None if answer is None else answer._asdict()]) + b"\n"


def read_answer(line: bytes) -> tuple[int, Answer | None]:
    """Return what `answer_line` wrote."""
    number, given = orjson.loads(line)
    return number, None if given is None else Answer(**given)
