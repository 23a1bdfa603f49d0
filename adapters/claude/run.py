"""A session of Claude Code at work: a process of the real client for each turn."""

from __future__ import annotations

import re
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from agentsdir.adapters import store_files
from agentsdir.adapters.claude import control, moving
from agentsdir.adapters.claude.opened import open_sessions
from agentsdir.adapters.claude.store import host_paths
from agentsdir.adapters.claude.stream import ClaudeTranslator
from agentsdir.adapters.claude.tokens import LIMITS
from agentsdir.adapters.processes import Program, command_of, environment_of
from agentsdir.adapters.protocol import ProviderSettings, TerminalProgram, deny_all
from agentsdir.formats import jsontext
from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.claude.tokens import ClaudeResult
    from agentsdir.adapters.protocol import (
        Content,
        NativeFile,
        Profile,
        RuleMeaning,
        SessionSpec,
    )
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.source import Source


# Errors: the client's own output says whether a run succeeded; its exit code says very little.

# By what the client calls it: the `error` of its message, or the HTTP status.
_KINDS = {
    "authentication_failed": "bad-key",
    "oauth_org_not_allowed": "bad-key",
    "401": "bad-key",
    "403": "bad-key",
    "billing_error": "billing",
    "rate_limit": "rate-limited",
    "429": "rate-limited",
    "overloaded": "overloaded",
    "529": "overloaded",
    "model_not_found": "no-model",
}
_HINTS = {
    "bad-key": "log in with the client, or set its key in config.toml",
    "rate-limited": "send the prompt again later",
    "overloaded": "send the prompt again later",
    "no-conversation": "`agentsdir reset` begins it anew; the log keeps what it has",
    "session-in-use": "another client may have it open; if not, end the process that has",
    "cut-stream": "send the prompt again; what was done until then is in the log",
}
_STATUS = re.compile(r"API Error: (\d{3})\b")
_MAX_MESSAGE = 2000


def is_settled(translator: ClaudeTranslator) -> bool:
    """Tell whether the client has answered and runs nothing in the background."""
    return (
        bool(translator.results) and not translator.results[-1].queued and not translator.has_tasks
    )


def failure(translator: ClaudeTranslator, code: int | None, errors: str) -> ProviderError | None:
    """Return why a run failed, by its last result; None if it did not.

    Args:
        translator: all of its output.
        code: its exit code, None when it had to be ended.
        errors: the end of its standard error.
    """
    if not translator.results:
        return _unfinished(code, errors)
    result = translator.results[-1]
    # The user set the limit, so what came before it is the answer.
    if not result.failed or result.subtype in LIMITS:
        return None
    return _error(_kind(result, translator.error), result.reason)


def _kind(result: ClaudeResult, error: str) -> str:
    message, reason = result.reason, result.terminal_reason
    if message.startswith("No conversation found"):
        return "no-conversation"
    if reason == "prompt_too_long" or message.startswith("Prompt is too long"):
        return "prompt-too-long"
    if result.stop_reason == "refusal":
        return "refused"
    if reason.startswith("aborted"):
        return "aborted"
    found = _STATUS.search(message)
    status = str(result.api_error_status or (found[1] if found else ""))
    return _KINDS.get(error) or _KINDS.get(status) or "api-error"


def _unfinished(code: int | None, errors: str) -> ProviderError:
    ending = errors[-_MAX_MESSAGE:]
    if "is already in use" in errors:
        return _error("session-in-use", ending)
    if ending and code == 1:
        return _error("refused-start", ending)  # it did not like how it was started, and says why
    how = "was ended" if code is None else f"ended with {code}"
    said = f": {ending}" if ending else ", and said nothing"
    return _error("cut-stream", f"the client {how} before it had answered{said}")


def _error(kind: str, message: str) -> ProviderError:
    return ProviderError(message, hint=_HINTS.get(kind), kind=kind)


OPTIONS = ("append-system-prompt", "disallowed-tools", "fallback-model", "max-turns")
_INTERACTIVE = ("append-system-prompt", "disallowed-tools")
"""Those that the client also takes where it does not run with ``--print``."""


# Of all versions: what one calls `default`, a later one calls `manual`.
MODES = {
    "default": "asks before it changes anything",
    "manual": "asks before it changes anything",
    "plan": "reads and plans, and changes nothing",
    "acceptEdits": "edits files in its folder without asking, and asks about all else",
    "auto": "decides by itself what it need not ask about",
    "dontAsk": "asks about nothing, and does not do what it would have to ask about",
    "bypassPermissions": "asks about nothing: it runs any command and changes any file as you can",
}


class ClaudeProvider:
    """Opens sessions of Claude Code, each under an id that we choose.

    The options are the client's own long options; none of them loosens a permission or names
    something to run (decision D33).
    """

    option_names: tuple[str, ...] = OPTIONS
    default_model = ""
    runs_program = True
    settings = ProviderSettings(modes=MODES, reports_cost=True)
    runner_methods = frozenset({"execute_tool_call"})

    def create(self, spec: SessionSpec) -> ClaudeSession:
        return ClaudeSession(spec, "--session-id")

    def restore(self, spec: SessionSpec, state: bytes) -> ClaudeSession:
        """Reopen a session from its transcript alone, or begin one without a main transcript."""
        del state
        self.materialize(spec)
        known = any(moving.role_at(path, spec.native_id) == "main" for path in spec.transcripts)
        return ClaudeSession(spec, "--resume" if known else "--session-id")

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        return moving.fork(transcripts, old_id, new_id, report)

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        return moving.session_files(spec)

    def materialize(self, spec: SessionSpec) -> list[Path]:
        check_closed(spec)
        return moving.materialize(spec)

    def is_continuation(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Return `ours`: the client itself only appends."""
        del saved, present
        return ours

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        return profile.files(".claude", "CLAUDE.md")

    def read_rule(self, text: str) -> RuleMeaning:
        return control.read_rule(text)


# One session: a process of the client for each turn (decision D11).

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
# Variables of a client that runs agentsdir; a client below it would take them for its own.
_NOT_INHERITED = frozenset({"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID"})
# Lines of stdout about the run: the log has `turn.start` and `turn.complete` for its ends, and the
# transcript a row for each failed attempt.
_LOGGED_ELSEWHERE = frozenset({"init", "result", "api_retry", "task_notification"})


class ClaudeSession:
    """One session. Between turns it has no process, only its files.

    Args:
        opening: the client's option that takes the session's id.
    """

    def __init__(self, spec: SessionSpec, opening: str) -> None:
        self._spec = spec
        self._patience = spec.host.patience
        self._opening = opening
        self._program: Program | None = None
        self._translator = ClaudeTranslator()
        self._confirm = spec.host.confirm
        self._decide = spec.host.decide

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn, which succeeds if the client's last result says so.

        Raises `ProviderError` of the kinds in the table of docs/clients/claude.md, "Running", and
        ``use-reset``, ``no-client``, ``no-folder`` and ``session-open`` before anything is started.
        """
        spec = self._spec
        if isinstance(content, str) and content.split()[:1] == ["/clear"]:
            # The client would continue under another id and leave this session as it is.
            raise ProviderError(
                "/clear would begin another session",
                hint="`agentsdir reset` does it here",
                kind="use-reset",
            )
        check_closed(spec)
        # The row of the prompt gets this id, so its block is known before the client starts.
        prompt = control.encode(control.prompt_line(content, spec.native_id, spec.new_id()))
        failed = yield from self._run(prompt)
        is_unknown = failed is not None and failed.kind == "no-conversation"
        # An older client looks in the folder of its working directory alone.
        if is_unknown and moving.materialize(spec, here=True):
            self.stop()
            self._translator = ClaudeTranslator()
            failed = yield from self._run(prompt, again=True)
        if failed is not None:
            raise failed

    def _run(
        self, prompt: bytes, *, again: bool = False
    ) -> Generator[StreamEvent, None, ProviderError | None]:
        """Run the client once; return why it failed. A prompt sent `again` is not yielded again."""
        spec = self._spec
        environment = environment_of(spec.host, _NOT_INHERITED)
        command = self._command(environment)
        program = self._program = Program(command, cwd=spec.cwd, environment=environment)
        spec.host.on_start(program.process)
        events = list(self._translator.line(prompt))
        if not again:
            yield from events
        if self._decide is not None:
            yield from self._have_calls_asked_about(program)
        program.write(prompt)
        deadline: float | None = None  # further output does not move it
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            said = None if left is not None and left <= 0 else next(program.lines(left), None)
            if said is None:
                break
            yield from self._handle_line(program, said)
            if not self._is_done:
                deadline = None
            elif deadline is None:
                deadline = time.monotonic() + self._patience
        yield from self._translator.end()
        code = program.wait(self._patience if program.is_over else 0)
        return failure(self._translator, code, program.errors)

    def _have_calls_asked_about(self, program: Program) -> Iterator[StreamEvent]:
        """Have the client ask about each tool call from here on.

        Raises `ProviderError` (kind ``runner-unsupported``) for a client that does not.
        """
        program.write(control.INITIALIZE)
        for line in program.lines(None):
            accepted = control.initialized(line)
            if accepted:
                return
            if accepted is not None:
                raise ProviderError(
                    "this version of the client does not ask about each tool call",
                    kind="runner-unsupported",
                )
            yield from self._handle_line(program, line)

    @property
    def _is_done(self) -> bool:
        """Whether the client has given its result and runs nothing in the background."""
        return is_settled(self._translator) and not self._translator.tasks

    def _handle_line(self, program: Program, line: bytes) -> Iterator[StreamEvent]:
        has_ended = partial(_has_ended, program)
        if reply := control.respond(line, self._confirm, has_ended, self._decide):
            program.write(reply)
        else:
            yield from filter(_is_conversation, self._translator.line(line))
        if is_settled(self._translator):
            program.close_input()

    def at_terminal(self) -> TerminalProgram:
        check_closed(self._spec)
        environment = environment_of(self._spec.host, _NOT_INHERITED)
        command = self._command(environment, protocol=(), options=_INTERACTIVE)
        return TerminalProgram(tuple(command), environment)

    def interrupt(self) -> Iterator[StreamEvent]:
        """Ask the client to stop, by its protocol and then by a signal, so that it can save."""
        program = self._program
        if program is None:
            return
        self._confirm = deny_all  # no more questions about a turn that is interrupted
        if self._decide is not None:
            self._decide = deny_all
        program.write(control.INTERRUPT)
        program.close_input()
        for line in program.lines(self._patience):
            yield from self._handle_line(program, line)
        program.signal(signal.SIGINT)
        for line in program.lines(self._patience):
            yield from self._handle_line(program, line)
        yield from self._translator.end()

    def suspend(self) -> bytes:
        """Return nothing: the transcript is enough (decision D23)."""
        return b""

    def stop(self) -> None:
        if self._program is not None:
            self._program.end(self._spec.host.marks)

    def transcripts(self) -> list[NativeFile]:
        return moving.session_files(self._spec)

    def _command(
        self,
        environment: Mapping[str, str],
        *,
        protocol: tuple[str, ...] = _PROTOCOL,
        options: tuple[str, ...] = OPTIONS,
    ) -> list[str]:
        spec = self._spec
        command = command_of(spec.host, COMMAND, "Claude Code", environment)
        given = [
            ("--model", spec.model),
            ("--permission-mode", spec.host.permission_mode),
            ("--allowedTools", ",".join(control.handed_tools(spec.host.allowed))),
            ("--system-prompt", spec.system_prompt),
            *((f"--{name}", spec.options.get(name, "")) for name in options),
        ]
        # One word for each: a value may begin with a hyphen.
        chosen = [f"{name}={value}" for name, value in given if value]
        if spec.system_prompt and _keeps_another_prompt(spec):
            chosen.append("--system-prompt-snapshot=off")
        return [*command, *protocol, *chosen, f"{self._opening}={spec.native_id}"]


def _has_ended(program: Program) -> bool:
    return program.wait(0) is not None


def _is_conversation(event: StreamEvent) -> bool:
    """Tell whether an event is part of the conversation, not one of `_LOGGED_ELSEWHERE`."""
    block = event.get("block") or {}
    return (block.get("metadata") or {}).get("event") not in _LOGGED_ELSEWHERE


_BEGINNING = 1024 * 1024
"""Bytes of a transcript in which the client has kept a prompt, if it keeps any."""


def _keeps_another_prompt(spec: SessionSpec) -> bool:
    """Tell whether the session began with another system prompt, which the client would send.

    Later versions keep it in the transcript, and send it again whatever they are given.
    """
    for name, source in spec.transcripts.items():
        if not name.endswith(f"/{spec.native_id}.jsonl"):
            continue
        with source.open() as stream:
            lines = stream.read(_BEGINNING).splitlines()
        for line in lines:
            if b'"prompt_snapshot"' not in line:
                continue
            try:
                kept = jsontext.decode(line)["attachment"]["systemPrompt"]
            except (KeyError, TypeError, ValueError):
                continue
            return isinstance(kept, list) and spec.system_prompt not in kept
    return False


def storage_of(spec: SessionSpec) -> Path:
    """Return the client's storage folder."""
    return host_paths(spec.host, spec.cwd).storage


def check_closed(spec: SessionSpec) -> None:
    """Raise `ProviderError` (kind ``session-open``) while another client has the session open."""
    store_files.check_closed(open_sessions(storage_of(spec)), spec.native_id)
