"""One session of Claude Code at work: a process of the real client for each turn (decision D11)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from agentsdir.adapters.claude import control, open_sessions
from agentsdir.adapters.claude.native_files import session_files
from agentsdir.adapters.claude.paths import host_paths
from agentsdir.adapters.claude.placing import place
from agentsdir.adapters.claude.provider import OPTIONS
from agentsdir.adapters.claude.translate import StdoutTranslator
from agentsdir.adapters.claude.verdict import failure, is_settled
from agentsdir.adapters.contract import deny_all
from agentsdir.adapters.launching import command_of, environment_of
from agentsdir.adapters.programs import Program
from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.contract import Content, NativeFile, SessionSpec
    from agentsdir.formats.reading.stream import StreamEvent

COMMAND = "claude"
_PROTOCOL = (
    "--print",
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",
    "--include-partial-messages",
    "--replay-user-messages",
    "--permission-prompt-tool=stdio",
)
# What a client that runs us says to its children: ours would take it for its own.
_NOT_INHERITED = frozenset({"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID"})
# What stdout says of the run, and not of the talk: `turn.start` and `turn.complete` tell of its
# ends, and of attempts that failed the transcript has a row.
_SAID_ELSEWHERE = frozenset({"init", "result", "api_retry", "task_notification"})


class ClaudeSession:
    """One session; between turns it is nothing but its files.

    Args:
        opening: the client's option that takes the session's id.
    """

    def __init__(self, spec: SessionSpec, opening: str) -> None:
        self._spec = spec
        self._patience = spec.host.patience
        self._opening = opening
        self._program: Program | None = None
        self._translator = StdoutTranslator()
        self._confirm = spec.host.confirm

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn. Success is what the client's last result says, never its exit code.

        Raises `ProviderError` of the kinds that docs/clients/claude.md, "Running", has in
        its table, and ``use-reset``, ``no-client``, ``no-folder`` and ``session-open`` before
        anything is started.
        """
        spec = self._spec
        if isinstance(content, str) and content.split()[:1] == ["/clear"]:
            # The client would go on under another id, and this session be as it was.
            raise ProviderError(
                "/clear would begin another session",
                hint="`agentsdir reset` does it here",
                kind="use-reset",
            )
        check_closed(spec)
        # The row of the prompt gets this id, so its block is known before the client is.
        prompt = control.encode(control.prompt_line(content, spec.native_id, spec.new_id()))
        failed = yield from self._run(prompt)
        if failed is not None and failed.kind == "no-conversation" and place(spec, here=True):
            # An older client looks in the folder of its working directory alone.
            self.stop()
            self._translator = StdoutTranslator()
            failed = yield from self._run(prompt, again=True)
        if failed is not None:
            raise failed

    def _run(
        self, prompt: bytes, *, again: bool = False
    ) -> Generator[StreamEvent, None, ProviderError | None]:
        """Run the client once; return why it failed. A prompt that is sent again is told once."""
        spec = self._spec
        environment = environment_of(spec.host, _NOT_INHERITED)
        command = self._command(environment)
        program = self._program = Program(command, cwd=spec.cwd, environment=environment)
        spec.host.began(program.process)
        told = list(self._translator.line(prompt))
        if not again:
            yield from told
        program.write(prompt)
        deadline: float | None = None  # a client that goes on talking does not move it
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            said = None if left is not None and left <= 0 else next(program.lines(left), None)
            if said is None:
                break
            yield from self._hear(program, said)
            if not self._is_done:
                deadline = None
            elif deadline is None:
                deadline = time.monotonic() + self._patience
        yield from self._translator.end()
        code = program.wait(self._patience if program.is_over else 0)
        return failure(self._translator, code, program.errors)

    @property
    def _is_done(self) -> bool:
        """Whether the client has given its result, and nothing of it runs on."""
        return is_settled(self._translator) and not self._translator.tasks

    def _hear(self, program: Program, line: bytes) -> Iterator[StreamEvent]:
        if reply := control.answer(line, self._confirm):
            program.write(reply)
        else:
            yield from filter(_is_of_the_talk, self._translator.line(line))
        if is_settled(self._translator):
            program.close_input()

    def interrupt(self) -> Iterator[StreamEvent]:
        """Ask the client to stop, by its protocol and then by a signal; it keeps what it can."""
        program = self._program
        if program is None:
            return
        self._confirm = deny_all  # who interrupts a turn is asked nothing more about it
        program.write(control.INTERRUPT)
        program.close_input()
        for line in program.lines(self._patience):
            yield from self._hear(program, line)
        program.signal(signal.SIGINT)
        for line in program.lines(self._patience):
            yield from self._hear(program, line)
        yield from self._translator.end()

    def suspend(self) -> bytes:
        """Return nothing: the transcript says all (decision D23)."""
        return b""

    def stop(self) -> None:
        """End the client and everything that it started."""
        if self._program is not None:
            self._program.end(self._spec.host.marks)

    def transcripts(self) -> list[NativeFile]:
        """Return the session's files as they stand in the client's store."""
        return session_files(self._spec)

    def _command(self, environment: Mapping[str, str]) -> list[str]:
        spec = self._spec
        command = command_of(spec.host, COMMAND, "Claude Code", environment)
        options = [
            ("--model", spec.model),
            ("--permission-mode", spec.host.permission_mode),
            ("--system-prompt", spec.system_prompt),
            *((f"--{name}", spec.options.get(name, "")) for name in OPTIONS),
        ]
        # One word each: a value may begin with a hyphen.
        chosen = [f"{name}={value}" for name, value in options if value]
        return [*command, *_PROTOCOL, *chosen, f"{self._opening}={spec.native_id}"]


def _is_of_the_talk(event: StreamEvent) -> bool:
    """Tell whether an event is none of those that the log or the transcript have of their own."""
    block = event.get("block") or {}
    return (block.get("metadata") or {}).get("event") not in _SAID_ELSEWHERE


def storage_of(spec: SessionSpec) -> Path:
    """Return the client's storage folder."""
    return host_paths(spec.host, spec.cwd).storage


def check_closed(spec: SessionSpec) -> None:
    """Raise `ProviderError` (kind ``session-open``) while another client has the session open."""
    other = open_sessions.holder(storage_of(spec), spec.native_id)
    if other is not None:
        raise ProviderError(
            f"session {spec.native_id} is open in another client, process {other.pid}",
            hint="end it there first; two clients would lose each other's answers",
            kind="session-open",
        )
