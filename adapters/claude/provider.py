"""The running side of Claude Code: one process of the real client for each turn (decision D11)."""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from agentsdir.adapters.claude import control, forking, open_sessions, placing, workspace
from agentsdir.adapters.claude.native_files import native_files
from agentsdir.adapters.claude.outcome import Outcome
from agentsdir.adapters.claude.paths import host_paths
from agentsdir.adapters.claude.translate import ClaudeTranslator
from agentsdir.adapters.programs import Program
from agentsdir.formats.errors import ProviderError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.contract import Content, NativeFile, Profile, SessionSpec
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source
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
_LEAVING = 10.0
"""Seconds that a client has between its answer, or an interrupt, and its end."""


class ClaudeProvider:
    """Opens sessions of Claude Code, each under an id that we choose.

    The options are the client's own long options; none of them loosens a permission or names
    something to run (decision D33).
    """

    option_names: tuple[str, ...] = (
        "append-system-prompt",
        "disallowed-tools",
        "fallback-model",
        "max-turns",
    )
    default_model = ""
    runs_program = True

    def create(self, spec: SessionSpec) -> ClaudeSession:
        """Open a new session. Raises `ProviderError`."""
        return ClaudeSession(spec, "--session-id")

    def restore(self, spec: SessionSpec, state: bytes) -> ClaudeSession:
        """Reopen one, from its transcript alone, which is put in place if it is not there.

        Raises as `place` does.
        """
        del state
        self.place(spec)
        return ClaudeSession(spec, "--resume")

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Yield the transcripts of a session under another id, as the client forks one."""
        return forking.fork(transcripts, old_id, new_id, report)

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        """Return the session's files as they stand in the client's store."""
        return placing.as_saved(spec, native_files(_storage(spec), spec.native_id))

    def place(self, spec: SessionSpec) -> list[Path]:
        """Put saved transcripts where the client finds them (see `placing`)."""
        _check_closed(spec)
        return placing.place(spec)

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        """Return what a profile puts into a workspace."""
        return workspace.workspace_files(profile)


class ClaudeSession:
    """One session; between turns it is nothing but its files.

    Args:
        opening: the client's option that takes the session's id.
    """

    def __init__(self, spec: SessionSpec, opening: str) -> None:
        self._spec = spec
        self._opening = opening
        self._program: Program | None = None
        self._translator = ClaudeTranslator()
        self._outcome = Outcome()

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn. Success is what the client's last result says, never its exit code.

        Raises `ProviderError`: ``no-client``, ``no-folder``, ``session-open``, ``session-in-use``,
        ``no-conversation``, ``bad-key``, ``rate-limited``, ``overloaded``, ``prompt-too-long``,
        ``refused``, ``api-error``, ``cut-stream``, and what the client calls otherwise.
        """
        spec = self._spec
        _check_closed(spec)
        environment = _environment(spec)
        command = self._command(environment)
        program = self._program = Program(command, cwd=spec.cwd, environment=environment)
        spec.host.began(program.process)
        # The row of the prompt gets this id, so its block is known before the client is.
        prompt = control.prompt_line(content, spec.native_id, str(uuid.uuid4()))
        line = control.encode(prompt)
        yield from self._translator.line(line)
        program.write(line)
        yield from self._listen(program, None)
        yield from self._translator.end()
        code = program.wait(_LEAVING)
        failure = self._outcome.failure(code, program.errors)
        if failure is not None:
            raise failure

    def _listen(self, program: Program, timeout: float | None) -> Iterator[StreamEvent]:
        for line in program.lines(timeout):
            self._outcome.note(line)
            if reply := control.answer(line, self._spec.host.confirm):
                program.write(reply)
            else:
                yield from self._translator.line(line)
            if self._outcome.is_settled:
                program.close_input()

    def interrupt(self) -> Iterator[StreamEvent]:
        """Ask the client to stop, by its protocol and then by a signal; it keeps what it can."""
        program = self._program
        if program is None:
            return
        program.write(control.INTERRUPT)
        program.close_input()
        yield from self._listen(program, _LEAVING)
        program.signal(signal.SIGINT)
        yield from self._listen(program, _LEAVING)
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
        spec = self._spec
        return placing.as_saved(spec, native_files(_storage(spec), spec.native_id))

    def _command(self, environment: Mapping[str, str]) -> list[str]:
        spec = self._spec
        program, *given = spec.host.command or (COMMAND,)
        found = shutil.which(program, path=environment.get("PATH", os.defpath))
        if found is None:
            raise ProviderError(
                f"there is no program {program!r} to run",
                hint="install Claude Code, or name it in config.toml: [providers.claude] command",
                kind="no-client",
            )
        options = [
            ("--model", spec.model),
            ("--permission-mode", spec.host.permission_mode),
            ("--system-prompt", spec.system_prompt),
            *((f"--{name}", value) for name, value in spec.options.items()),
        ]
        # One word each: a value may begin with a hyphen.
        chosen = [f"{name}={value}" for name, value in options if value]
        return [found, *given, *_PROTOCOL, *chosen, f"{self._opening}={spec.native_id}"]


def _environment(spec: SessionSpec) -> dict[str, str]:
    host = spec.host
    inherited = {k: v for k, v in host.variables.items() if k not in _NOT_INHERITED}
    return {"HOME": str(host.home), **inherited, **host.environment, **host.marks}


def _storage(spec: SessionSpec) -> Path:
    return host_paths(spec.host, spec.cwd).storage


def _check_closed(spec: SessionSpec) -> None:
    """Raise `ProviderError` (kind ``session-open``) while another client has the session open."""
    holder = open_sessions.holder(_storage(spec), spec.native_id)
    if holder is not None:
        raise ProviderError(
            f"session {spec.native_id} is open in another client, process {holder.pid}",
            hint="end it there first; two clients would lose each other's answers",
            kind="session-open",
        )
