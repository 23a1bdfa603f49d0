"""The line protocol: requests as lines of JSON in, objects as lines of JSON out (docs/protocol.md).

One thread waits for all pipes at once, and forks a process for each request. Requests of one agent
are done in order, others side by side.
"""

from __future__ import annotations

import copy
import gc
import os
import select
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import orjson

from agentsdir.adapters.processes import dying_with_parent
from agentsdir.cli import request_process
from agentsdir.cli.command_line import read_command
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import error_document
from agentsdir.cli.questions import KEEPS, Answer
from agentsdir.cli.request_order import RequestOrder
from agentsdir.cli.requests import (
    ANSWER,
    CANCEL,
    LINE_LIMIT,
    QUEUE,
    BadRequest,
    Request,
    agents_named,
    parse_request,
)
from agentsdir.formats.errors import AgentsdirError, Interruption, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.cli.command_line import ReadCommand
    from agentsdir.cli.environment import Environment
    from agentsdir.cli.request_process import RequestProcess
    from agentsdir.cli.requests import Id

MOST_AT_ONCE = 32
"""Requests of one lane that are done at once."""
MOST_IDLE = 4
"""Children that wait for another request."""
MOST_WAITING = 10_000
"""Requests that wait; while there are more, no line is read."""
MOST_HELD = 64 * 1024 * 1024
"""Bytes of the requests that wait; while there are more, no line is read."""
_OUTPUT_LIMIT = 1024 * 1024
"""Bytes of output that wait for the reader; while there are more, no child's output is read.

As many of answers that no child gives; while there are more, no line is read."""
_PIECE = 64 * 1024
_LAST_WORDS = 1.0
"""Seconds for which a reader that reads nothing is waited for, after a signal."""
_NOTE = b"agentsdir: "

Watch: TypeAlias = "dict[int, tuple[int, Callable[[int], None]]]"
"""Descriptor → events of `poll`, and what is called with those that are there."""


class _Waiting(NamedTuple):
    """What is kept of a request that waits: its command, and the line that it was."""

    command: ReadCommand
    line: bytes


class Protocol:
    """Serves one client, until its requests are done and there will be no other.

    Args:
        env: its standard input and output are descriptors of the system.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env = copy.copy(env)
        # Text of agents and clients is between the values, and must not pass for one of them.
        env.frame = f"\x1e{os.urandom(16).hex()} "
        self._frame = env.frame.encode()
        env.find_root()  # it stays the same, whatever is made meanwhile
        self._input = env.stdin.fileno()
        self._output = env.stdout.fileno()
        self._quiet = _quiet(env)
        self._bind = dying_with_parent()
        self._partial = bytearray()
        self._skipping = False  # the rest of a line that is too long
        self._reads = True
        self._pending = bytearray()  # output that waits for the reader
        self._own = 0  # bytes of it that answer lines for which no child was needed
        self._order = RequestOrder(MOST_AT_ONCE)
        self._commands: dict[Id, _Waiting] = {}
        self._held = 0
        self._idle: list[RequestProcess] = []
        self._leaving: list[RequestProcess] = []
        """Children without a request that are about to end."""
        self._running: dict[Id, RequestProcess] = {}
        self._questions: dict[str, RequestProcess] = {}
        self._asked = 0
        self._signal = 0
        self._reader_is_gone = False

    def run(self) -> int:
        """Serve; return the exit code."""
        gc.collect()
        gc.freeze()  # so that no collection in a child copies the pages of all objects
        signals, wake = os.pipe()
        os.set_blocking(wake, False)
        before = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        handlers = [
            (number, signal.signal(number, lambda *_: None))
            for number in request_process.SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        try:
            self._serve(signals, wake)
        finally:
            for process in (*self._idle, *self._leaving):
                process.control.close()
                os.waitpid(process.pid, 0)
            signal.set_wakeup_fd(before)
            for number, handler in handlers:
                signal.signal(number, handler)
            os.close(signals)
            os.close(wake)
        if self._reader_is_gone:
            return Exit.CLOSED_PIPE
        return 128 + self._signal if self._signal else Exit.OK

    def _serve(self, signals: int, wake: int) -> None:
        deadline = 0.0
        while True:
            while (request := self._order.next()) is not None:
                self._start(request, (signals, wake))
            if not self._reads and not self._running:
                if self._reader_is_gone or not self._pending:
                    return
                if self._signal:  # the reader may never read
                    deadline = deadline or time.monotonic() + _LAST_WORDS
                    if time.monotonic() >= deadline:
                        return
            watch = self._watch()
            watch[signals] = (select.POLLIN, partial(self._take_signals, signals))
            poll = select.poll()
            for descriptor, (events, _) in watch.items():
                poll.register(descriptor, events)
            for descriptor, events in poll.poll(_LAST_WORDS * 1000 if deadline else None):
                watch[descriptor][1](events)

    def _watch(self) -> Watch:
        watch: Watch = {}
        if (
            self._reads
            and self._order.waiting < MOST_WAITING
            and self._held < MOST_HELD
            and self._own <= _OUTPUT_LIMIT
        ):
            watch[self._input] = (select.POLLIN, self._read)
        if not self._reader_is_gone:
            # Without events, poll says only that the reader is gone.
            events = select.POLLOUT if self._pending else 0
            watch[self._output] = (events, self._write)
        stalled = len(self._pending) > _OUTPUT_LIMIT
        for running in self._children():
            watch[running.control.fileno()] = (select.POLLIN, partial(self._hear, running))
            if running.request is not None and not stalled:
                for descriptor in running.lines:
                    watch[descriptor] = (select.POLLIN, partial(self._take, running, descriptor))
        return watch

    def _children(self) -> Iterator[RequestProcess]:
        yield from self._running.values()
        yield from self._idle
        yield from self._leaving

    # Lines of requests.

    def _read(self, _events: int) -> None:
        try:
            piece = os.read(self._input, _PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self._env.notify(f"cannot read standard input: {error.strerror}")
            piece = b""
        if not piece:
            self._end_input()
            return
        before = len(self._pending)
        *whole, rest = piece.split(b"\n")
        for line in whole:
            self._add(line)
            self._end_line()
        self._add(rest)
        self._own += len(self._pending) - before

    def _add(self, piece: bytes) -> None:
        if self._skipping:
            return
        self._partial += piece
        if len(self._partial) > LINE_LIMIT:
            self._partial = bytearray()
            self._skipping = True
            message = f"the line has more than {LINE_LIMIT} bytes"
            hint = "put a long prompt into a file, and name the file"
            self._refuse(BadRequest(message, hint=hint, kind="too-long"))

    def _end_line(self) -> None:
        line, self._partial = bytes(self._partial), bytearray()
        skipped, self._skipping = self._skipping, False
        if not skipped and line.strip():
            try:
                self._accept(parse_request(line), line)
            except BadRequest as error:
                self._refuse(error)

    def _refuse(self, error: BadRequest) -> None:
        known = error.request_id in self._running or self._order.has(error.request_id)
        self._fail(None if known else error.request_id, error)

    def _accept(self, request: Request, line: bytes) -> None:
        if request.id in self._running or self._order.has(request.id):
            raise BadRequest(f"the request {request.id!r} has not ended yet", kind="same-id")
        if request.verb in _OWN:
            try:
                _OWN[request.verb](self, request)
            except AgentsdirError as error:
                self._fail(request.id, error)
            else:
                self._exit(request.id, Exit.OK)
            return
        try:
            command = read_command(request.command_line())
        except UsageError as error:
            self._fail(request.id, error)
            return
        if isinstance(command, str):
            for text in command.splitlines():
                self._put(request.id, {"text": text})
            self._exit(request.id, Exit.OK)
            return
        self._commands[request.id] = _Waiting(command, line)
        self._held += len(line)
        self._order.add(request, self._keys_of(request, command))

    def _keys_of(self, request: Request, command: ReadCommand) -> Iterator[str]:
        if not request.is_at_once:
            yield from self._keys(command)
        elif request.verb == QUEUE:  # an inbox keeps the order of the requests
            yield from (f"{QUEUE} {key}" for key in self._keys(command))

    def _keys(self, command: ReadCommand) -> Iterator[str]:
        """Yield what says which agents a request names: their ids where they have one, and words.

        A word is a key of its own: it may name an agent that an earlier request makes or renames.
        """
        for word in agents_named(command):
            yield f"word {word}"
            with suppress(AgentsdirError, OSError, ValueError):
                yield find_agent(self._quiet, word).id

    def _end_input(self) -> None:
        self._reads = False
        self._end_line()
        for running in list(self._questions.values()):
            self._send_answer(running, None)

    def _forget(self, request: Request) -> _Waiting:
        """Return what was kept of a request that waits no more."""
        kept = self._commands.pop(request.id)
        self._held -= len(kept.line)
        return kept

    # Children.

    def _start(self, request: Request, own: tuple[int, int]) -> None:
        command, line = self._forget(request)
        if not request.is_at_once:
            self._order.also(request, self._keys(command))  # an agent may have been made meanwhile
        if self._idle and self._idle[-1].take_on(request, line):
            self._running[request.id] = self._idle.pop()
            return
        inherited = [*own, *({self._input, self._output} - {0, 1, 2})]
        for process in self._children():
            inherited += process.descriptors
        try:
            process = request_process.start(self._env, request, command, inherited, self._bind)
        except OSError as error:
            self._order.done(request)
            message = f"no process can be started: {error.strerror}"
            self._fail(request.id, AgentsdirError(message, kind="no-process"))
        else:
            self._running[request.id] = process

    def _take(self, running: RequestProcess, descriptor: int, _events: int = 0) -> None:
        """Take over what a child has printed."""
        held = running.lines.get(descriptor)
        if held is None:  # the child was seen to end
            return
        try:
            piece = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return
        if not piece:
            if held:
                self._put_line(running, descriptor, bytes(held))
            del running.lines[descriptor]
            os.close(descriptor)
        elif b"\n" not in piece:
            held += piece
        else:
            first, *others = piece.split(b"\n")
            rest = others.pop()
            self._put_line(running, descriptor, bytes(held + first))
            for line in others:
                self._put_line(running, descriptor, line)
            held[:] = rest

    def _put_line(self, running: RequestProcess, descriptor: int, line: bytes) -> None:
        # What stands before the mark is the beginning of a value that a signal cut off.
        assert running.request is not None
        request_id = running.request.id
        _, framed, value = line.rpartition(self._frame)
        if framed:
            kind = b"value" if descriptor == running.out else b"error"
            self._emit(b'{"id":%b,"%b":%b}\n' % (orjson.dumps(request_id), kind, value))
        elif descriptor == running.out:
            self._put(request_id, {"text": _decoded(line)})
        else:
            self._put(request_id, {"note": _decoded(line.removeprefix(_NOTE))})

    def _hear(self, running: RequestProcess, _events: int) -> None:
        """Take a child's question, or see that it has ended."""
        try:
            piece = running.control.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self._reap(running)
            return
        *whole, rest = bytes(running.said + piece).split(b"\n")
        running.said[:] = rest
        for message in whole:
            said = orjson.loads(message)
            if "question" in said:
                running.number = said["number"]
                self._ask(running, said["question"])
            elif "closed" in said:
                self._close_question(running)
            else:
                self._take_back(running)

    def _take_back(self, running: RequestProcess) -> None:
        """Note that a child has done its request, and can do another."""
        request = running.request
        assert request is not None
        self._drain(running)
        running.request = None
        del self._running[request.id]
        self._order.done(request)
        self._exit(request.id, Exit.OK)
        if running.signalled or len(self._idle) >= MOST_IDLE:
            running.control.shutdown(socket.SHUT_WR)
            self._leaving.append(running)
        else:
            self._idle.append(running)

    def _drain(self, running: RequestProcess) -> None:
        """Take over all that a child has printed."""
        for descriptor in list(running.lines):
            while descriptor in running.lines and _is_readable(descriptor):
                self._take(running, descriptor, 0)
            if held := running.lines.get(descriptor):
                self._put_line(running, descriptor, bytes(held))
                held.clear()

    def _reap(self, running: RequestProcess) -> None:
        """Note that a child has ended, and with it its request."""
        request = running.request
        if request is not None:
            self._drain(running)
            self._close_question(running)
        for descriptor in running.lines:  # a program that it left behind may have the pipe
            os.close(descriptor)
        running.lines.clear()
        running.control.close()
        code = os.waitstatus_to_exitcode(os.waitpid(running.pid, 0)[1])
        if request is None:
            for kind in (self._idle, self._leaving):
                if running in kind:
                    kind.remove(running)
            return
        del self._running[request.id]
        self._order.done(request)
        if code < 0:
            code = 128 - code
            why = f"the process of the request was ended by signal {code - 128}"
            document = {**error_document(AgentsdirError(why, kind="killed")), "exitCode": code}
            self._put(request.id, {"error": document})
        self._exit(request.id, code)

    # Questions, and the verbs that no child does.

    def _ask(self, running: RequestProcess, question: dict[str, Any]) -> None:
        assert running.request is not None
        self._asked += 1
        running.question = f"q{self._asked}"
        self._questions[running.question] = running
        self._put(running.request.id, {"question": {"questionId": running.question, **question}})
        if not self._reads:
            self._send_answer(running, None)

    def _send_answer(self, running: RequestProcess, answer: Answer | None) -> None:
        self._questions.pop(running.question, None)
        with suppress(OSError):  # it has ended meanwhile
            running.control.sendall(request_process.answer_line(running.number, answer))

    def _close_question(self, running: RequestProcess) -> None:
        if running.question:
            assert running.request is not None
            self._questions.pop(running.question, None)
            self._put(running.request.id, {"questionClosed": running.question})
            running.question = ""

    def _answer(self, request: Request) -> None:
        """Answer a question: ``answer QUESTION yes|no``."""
        answer = _answer_of(request)
        running = self._questions.get(str(request.args[0]))
        if running is None:
            raise AgentsdirError(
                f"no question {request.args[0]!r} is open", kind="no-such-question"
            )
        self._send_answer(running, answer)

    def _cancel(self, request: Request) -> None:
        """End another request, as Ctrl-C would: ``cancel ID``."""
        if len(request.args) != 1 or request.options:
            raise UsageError("cancel takes the id of one request, and no options")
        (given,) = request.args
        waiting = self._order.take_out(given)
        if waiting is not None:
            self._forget(waiting)
            self._fail(given, Interruption("the request was cancelled", kind="interrupted"))
        elif given in self._running:
            self._running[given].kill(signal.SIGINT)
        else:
            raise AgentsdirError(f"there is no request {given!r}", kind="no-such-request")

    # The end.

    def _take_signals(self, signals: int, _events: int) -> None:
        for number in os.read(signals, 256):
            if number in request_process.SIGNALS:
                self._signal = number
                self._stop(signal.Signals(number))

    def _stop(self, number: signal.Signals) -> None:
        """Read no more requests, drop those that wait, and end those that run."""
        self._reads = False
        for request in self._order.drop():
            self._forget(request)
            self._fail(request.id, Interruption("the request was not begun", kind="interrupted"))
        for running in self._running.values():
            running.kill(number)

    # Objects to the reader.

    def _fail(self, request_id: Id, error: AgentsdirError) -> None:
        document = error_document(error)
        self._put(request_id, {"error": document})
        self._exit(request_id, document["exitCode"])

    def _exit(self, request_id: Id, code: int) -> None:
        self._put(request_id, {"exit": code})

    def _put(self, request_id: Id, value: dict[str, Any]) -> None:
        self._emit(orjson.dumps({"id": request_id, **value}) + b"\n")

    def _emit(self, line: bytes) -> None:
        if not self._reader_is_gone:
            self._pending += line

    def _write(self, events: int) -> None:
        if not events & select.POLLOUT:  # an error: nothing reads any more
            self._lose_reader()
            return
        try:
            # A pipe that is ready takes so much without blocking; it may be shared, so it has to
            # stay one that blocks.
            written = os.write(self._output, self._pending[: select.PIPE_BUF])
        except BlockingIOError:
            return
        except OSError:
            self._lose_reader()
            return
        del self._pending[:written]
        self._own = min(self._own, len(self._pending))

    def _lose_reader(self) -> None:
        self._reader_is_gone = True
        self._pending.clear()  # else children would wait until it is read
        self._stop(signal.SIGTERM)


_OWN = {ANSWER: Protocol._answer, CANCEL: Protocol._cancel}


def _answer_of(request: Request) -> Answer:
    options = request.options
    word = request.args[1] if len(request.args) == 2 else None
    if word not in ("yes", "no") or not options.keys() <= {"reason", "keep"}:
        raise UsageError("answer takes a question's id, yes or no, and options reason and keep")
    reason, keep = options.get("reason", ""), options.get("keep", "once")
    if not isinstance(reason, str) or keep not in KEEPS:
        raise UsageError(f"reason is a text, and keep one of {', '.join(KEEPS)}")
    answer = Answer(word == "yes", reason, keep)
    if len(request_process.answer_line(0, answer)) > request_process.HANDED_OVER:
        raise UsageError("reason has more than 64 KiB", hint="say more in the next prompt")
    return answer


def _decoded(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def _quiet(env: Environment) -> Environment:
    """Return an environment for looking up agents, whose notes the request's own process prints."""
    quiet = copy.copy(env)
    quiet.stderr = StringIO()
    return quiet
