"""The process that does the work: `agentsdir chat --jsonl`, started and asked by the prompt.

docs/protocol.md has the objects. The prompt never waits for a turn: each answer comes to a
callback, or ends a future.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.formats import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    Taker = Callable[[dict[str, Any]], bool]

_PROGRAM = "from agentsdir.cli.main import main; main()"
_PIECE = 256 * 1024
_GRACE = 5.0
"""Seconds that the process has to end its turns when the prompt is left. Another one of this
program closes turns that were left open then."""


class Outcome(NamedTuple):
    """How a request ended: the exit code, and the objects that were not given to a callback."""

    exit: int
    objects: tuple[dict[str, Any], ...] = ()

    @property
    def error(self) -> str:
        """What went wrong, for a person; empty where nothing did."""
        for one in reversed(self.objects):
            error = one.get("error")
            if isinstance(error, dict):
                hint = f" ({error['hint']})" if error.get("hint") else ""
                return f"{error.get('message')}{hint}"
        return f"exit code {self.exit}" if self.exit else ""

    @property
    def kind(self) -> str:
        """The kind of what went wrong; empty where nothing did."""
        errors = (one.get("error") for one in reversed(self.objects))
        return next((str(error.get("kind")) for error in errors if isinstance(error, dict)), "")

    @property
    def result(self) -> dict[str, Any]:
        """What `send` printed last; empty for other verbs."""
        return next((row for row in reversed(self.rows) if row.get("type") == "turn"), {})

    @property
    def document(self) -> dict[str, Any]:
        """The first value that the verb printed."""
        return next(iter(self.rows), {})

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The values that the verb printed."""
        return [one["value"] for one in self.objects if isinstance(one.get("value"), dict)]

    @property
    def notes(self) -> list[str]:
        """What it said on standard error."""
        return [str(one["note"]) for one in self.objects if "note" in one]

    @property
    def text(self) -> str:
        """What the verb printed for people."""
        return "".join(f"{one['text']}\n" for one in self.objects if "text" in one)


class _Request(NamedTuple):
    done: asyncio.Future[Outcome]
    take: Taker | None
    kept: list[dict[str, Any]]


class ProtocolClient:
    """Starts the process, writes requests, and hands out what it answers.

    Args:
        root: the agents directory, for `--root`; empty where the process finds it as this one did.
        unasked: called with objects that answer no request, such as a question.
        ended: called with a sentence when the process ends by itself.
    """

    def __init__(
        self,
        root: str,
        cwd: Path,
        variables: Mapping[str, str],
        unasked: Callable[[dict[str, Any]], None],
        ended: Callable[[str], None],
    ) -> None:
        self._root = root
        self._cwd = cwd
        self._variables = variables
        self._unasked = unasked
        self._ended = ended
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._requests: dict[int, _Request] = {}
        self._writing: set[asyncio.Future[None]] = set()
        self._number = 0
        self._is_leaving = False

    def start(self) -> None:
        """Start the process, unless it runs; returns at once."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())

    async def _start(self) -> None:
        given = ["--root", self._root] if self._root else []
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            *given,
            "chat",
            "--jsonl",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self._cwd,
            env=dict(self._variables),
            # Ctrl-C and Ctrl-Z are keys of the prompt, and questions are asked in it.
            start_new_session=True,
        )
        self._reader = asyncio.ensure_future(self._read(self._process))

    def request(
        self, verb: str, take: Taker | None = None, **keys: Any
    ) -> tuple[int, asyncio.Future[Outcome]]:
        """Send a request; return its number and what it will come to, which never raises.

        Args:
            take: called with each object of the answer; one that it does not take, which it says
                by False, is in the outcome.
            keys: of the request.
        """
        self._number += 1
        number = self._number
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._requests[number] = _Request(done, take, [])
        self.start()
        self._write_soon(number, {"id": number, "verb": verb, **keys})
        return number, done

    def _write_soon(self, number: int, document: dict[str, Any]) -> None:
        writing = asyncio.ensure_future(self._write(number, document))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write(self, number: int, document: dict[str, Any]) -> None:
        # Half of a surrogate pair is what a terminal can send, and no JSON.
        line = orjson.dumps(jsontext.clean(document, set()))
        try:
            assert self._starting is not None
            await self._starting
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
        except OSError as error:
            self._finish(number, 1, f"the request cannot be sent: {error.strerror or error}")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        rest: list[bytes] = []
        while piece := await process.stdout.read(_PIECE):
            first, *others = piece.split(b"\n")
            rest.append(first)
            for other in others:
                self._take(b"".join(rest))
                rest = [other]
        code = await process.wait()
        self._process = self._starting = None
        why = f"the process that runs the agents has ended (exit code {code})"
        waiting = list(self._requests)
        for number in waiting:
            self._finish(number, 1, why)
        if not self._is_leaving:
            self._ended(f"{why}; the next command starts another")

    def _take(self, line: bytes) -> None:
        try:
            given = orjson.loads(line)
        except orjson.JSONDecodeError:
            return
        if not isinstance(given, dict):
            return
        number = given.get("id")
        request = self._requests.get(number) if isinstance(number, int) else None
        if request is None or "question" in given or "questionClosed" in given:
            self._unasked(given)
        elif "exit" in given:
            del self._requests[given["id"]]
            if not request.done.done():
                request.done.set_result(Outcome(int(given["exit"]), tuple(request.kept)))
        elif request.take is None or not request.take(given):
            request.kept.append(given)

    def _finish(self, number: int, code: int, why: str) -> None:
        request = self._requests.pop(number, None)
        if request is not None and not request.done.done():
            error = {"error": {"kind": "ended", "message": why, "hint": None}}
            request.done.set_result(Outcome(code, (*request.kept, error)))

    async def leave(self) -> None:
        """Have the process end its turns, and wait until it has ended."""
        self._is_leaving = True
        if self._starting is not None:
            with suppress(OSError):
                await self._starting
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _GRACE)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
