"""A session of Gemini CLI at work: a process of the real client for each turn."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import tempfile
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters import store_files
from agentsdir.adapters.gemini import moving, store
from agentsdir.adapters.gemini.opened import open_sessions
from agentsdir.adapters.gemini.projects import CHATS, host_storage, project_folder
from agentsdir.adapters.gemini.read import read_session
from agentsdir.adapters.gemini.store import ID
from agentsdir.adapters.gemini.stream import GeminiTranslator, JoinedTurn, PendingFollower
from agentsdir.adapters.processes import Program, command_of, environment_of, find_program
from agentsdir.adapters.protocol import ProviderSettings, RuleMeaning, TerminalProgram
from agentsdir.formats import blocks
from agentsdir.formats.blocks import MAIN, make_block
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.sink import ParseSink

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from agentsdir.adapters.protocol import Content, Host, NativeFile, Profile, SessionSpec
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.source import Source


# The client's version, which decides some options and folder names.

COMMAND = "gemini"
_PACKAGE = "@google/gemini-cli"
_TAKES_IDS = (0, 41)
_NAMES_BY_SLUG = (0, 29)
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_PATIENCE = 30
_LARGEST_PACKAGE = 1024 * 1024
"""Seconds that a program has to say its version."""


def takes_session_id(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Tell whether a new session can be given an id (``--session-id``)."""
    return version_of(command, environment) >= _TAKES_IDS


def names_by_hash(host: Host) -> bool:
    """Tell whether the client on a host names a project's folder by a hash.

    Only the package is read, no program is started: without a package the client counts as newer.
    """
    program, *given = host.command or (COMMAND,)
    environment = {**host.variables, **host.environment}
    found = _packaged_version([find_program(program, environment) or program, *given])
    return () < found < _NAMES_BY_SLUG


def version_of(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, ...]:
    """Return a program's version; empty if it is unknown.

    The package is read, as starting the program takes seconds; only a program without a package is
    started.
    """
    if found := _packaged_version(command):
        return found
    try:
        asked = subprocess.run(
            [*command, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return _numbers(asked.stdout.decode(errors="replace"))


def _packaged_version(command: Sequence[str]) -> tuple[int, ...]:
    return next((_numbers(found) for word in command if (found := _packaged(Path(word)))), ())


def _packaged(program: Path) -> str:
    """Return the version in the package that a program's file belongs to."""
    try:
        folders = program.resolve(strict=True).parents[:3]
    except (OSError, RuntimeError):
        return ""
    for folder in folders:
        try:
            with (folder / "package.json").open("rb") as stream:
                said = orjson.loads(stream.read(_LARGEST_PACKAGE))
        except (OSError, orjson.JSONDecodeError):
            continue
        if isinstance(said, dict) and said.get("name") == _PACKAGE:
            return str(said.get("version"))
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    found = _NUMBERS.search(text)
    return tuple(map(int, found.groups())) if found else ()


# Stubs: chat files without a conversation, which newer clients leave when they resume a session.
#
# A stub has the id of the session beside it. The next client that starts in the project takes it
# for a broken session, and deletes every file of that id, the real one included. So the stub that a
# turn left is removed.

_LARGEST_STUB = 1024 * 1024
"""Bytes that a stub has at most: a header, and the context that the client sends itself."""
_ANSWERS = frozenset({"assistant_text", "thinking", "tool_use", "subagent"})
_CONTEXT = "<session_context>"


def remove_stubs(chats: Path, native_id: str) -> list[Path]:
    """Remove the stubs beside a session's own chat file; return what was removed."""
    removed = []
    for path in [listed.file for listed in store.in_folder(chats, native_id)][1:]:
        if is_stub(path, native_id):
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def has_answer(chats: Path, native_id: str) -> bool:
    """Tell whether a session's chat files have any answer of a model, even a superseded one."""
    for listed in store.in_folder(chats, native_id):
        sink = ParseSink()
        read_session(store.files(listed.file), sink)
        if any(block["type"] in _ANSWERS for block in sink.blocks("all")):
            return True
    return False


def is_stub(path: Path, native_id: str) -> bool:
    """Tell whether a log of that session has only a header and the client's own context."""
    if path.suffix != ".jsonl":
        return False
    try:
        # O_NONBLOCK: a FIFO in its place must not block.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_STUB:
                return False
            rows = [orjson.loads(line) for line in stream.read().split(b"\n") if line.strip()]
    except (OSError, orjson.JSONDecodeError):
        return False
    named = any(isinstance(row, dict) and row.get("sessionId") == native_id for row in rows)
    return named and all(_says_nothing(row) for row in rows)


def _says_nothing(row: Any) -> bool:
    if not isinstance(row, dict) or "id" in row or "$rewindTo" in row:
        return False
    said = row.get("$set", row)
    messages = said.get("messages", []) if isinstance(said, dict) else None
    return isinstance(messages, list) and all(map(_is_context, messages))


def _is_context(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("type") != "user":
        return False
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return all(isinstance(t, str) and t.lstrip().startswith(_CONTEXT) for t in texts)


# Errors: the client's own words tell whether a run succeeded; its exit code is only a hint.

# By the HTTP status that an API error carries.
_STATUSES = {
    "401": "bad-key",
    "403": "bad-key",
    "404": "no-model",
    "429": "rate-limited",
    "503": "overloaded",
    "529": "overloaded",
}
# By the exit code, which is the HTTP status modulo 256.
_EXIT_STATUSES: dict[int | None, str] = {int(status) % 256: status for status in _STATUSES}
# By what the client calls an error of its own, and by the exit code that it has for it.
_TYPES = {
    "FatalAuthenticationError": "bad-key",
    "FatalTurnLimitedError": "max-turns",
}
# By a word in the reason, or on standard error.
_WORDS = {"ModelNotFoundError": "no-model", "API_KEY_INVALID": "bad-key"}
_CODES = {41: "bad-key", 53: "max-turns"}
_NOT_TRUSTED = 55
# By a text on standard error when there is no result.
_STARTUP_ERRORS = {
    "Error resuming session": "no-conversation",
    "already exists. Use --resume": "session-in-use",
}
_REFUSED = frozenset({1, 42, 44, 52, 54})
_HINTS = {
    "bad-key": "log in with the client, "
    "or set GEMINI_API_KEY under [providers.gemini.env] in config.toml",
    "no-model": "`agentsdir new --model` and config.toml name one; without, the client chooses",
    "rate-limited": "send the prompt again later",
    "overloaded": "send the prompt again later",
    "no-conversation": "`agentsdir reset` begins it anew; the log keeps what it has",
    "session-in-use": "`agentsdir reset` begins it anew; the log keeps what it has",
    "untrusted-folder": "trust it in the client, or set GEMINI_CLI_TRUST_WORKSPACE "
    'to "true" under [providers.gemini.env] in config.toml',
    "max-turns": "raise model.maxSessionTurns in the client's settings",
    "cut-stream": "send the prompt again; what was done until then is in the log",
}
_STATUS = re.compile(r'"code"\s*:\s*(\d{3})\b|\bstatus:? (\d{3})\b')
# Lines that some versions print at every start.
_STARTUP_NOISE = ("Warning: ", "Ripgrep is not available", "YOLO mode is enabled", "[STARTUP]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What follows a refusal of an argument: all arguments there are.
_USAGE = "Usage: "
_MAX_MESSAGE = 2000
_UNTRUSTED = "Gemini CLI runs nothing in a folder that its user has not trusted"


def is_settled(turn: JoinedTurn) -> bool:
    """Tell whether the client has given its result."""
    return turn.result is not None


def failure(turn: JoinedTurn, code: int | None, errors: str) -> ProviderError | None:
    """Return why a run failed, by its result; None if it did not.

    Args:
        turn: all of its output.
        code: its exit code, None when it had to be ended.
        errors: the end of its standard error.
    """
    result = turn.result
    if result is None:
        return _unfinished(code, _without_noise(errors))
    if not result.failed:
        return None
    message = result.message or "the client gave no reason"
    found = _STATUS.search(message)
    status = (found[1] or found[2]) if found else _EXIT_STATUSES.get(code, "")
    named = next((kind for word, kind in _WORDS.items() if word in message + errors), None)
    kind = _TYPES.get(result.error_type) or named or _STATUSES.get(status) or "api-error"
    return _error(kind, message)


def _unfinished(code: int | None, errors: str) -> ProviderError:
    ending = errors[-_MAX_MESSAGE:]
    for words, kind in _STARTUP_ERRORS.items():
        if words in errors:
            return _error(kind, errors[:_MAX_MESSAGE])
    if code == _NOT_TRUSTED:
        return _error("untrusted-folder", _UNTRUSTED)
    if code in _CODES:
        return _error(_CODES[code], ending or f"the client ended with {code}")
    if ending and code in _REFUSED:
        return _error("refused-start", errors[:_MAX_MESSAGE])
    how = "was ended" if code is None else f"ended with {code}"
    said = f": {ending}" if ending else ", and said nothing"
    return _error("cut-stream", f"the client {how} before it had answered{said}")


def _without_noise(errors: str) -> str:
    said = []
    for line in _COLOUR.sub("", errors).splitlines():
        if line.startswith(_USAGE):
            break
        if not line.startswith(_STARTUP_NOISE):
            said.append(line.rstrip())
    return "\n".join(said).strip()


def _error(kind: str, message: str) -> ProviderError:
    return ProviderError(message, hint=_HINTS.get(kind), kind=kind)


# One session: a process of the client for each turn (decision D11).

# Variables of a client that runs agentsdir; a client below it would take them for its own.
_NOT_INHERITED = frozenset({"GEMINI_CLI"})
# A client that starts itself again would not get the signal that interrupts it.
_OUR_VARIABLES = {"GEMINI_CLI_NO_RELAUNCH": "true"}
# This client asks no question when a program runs it.
MODES = {
    "default": "does not do what it would have to ask about",
    "plan": "reads and plans, and changes nothing",
    "auto_edit": "edits files, and does nothing else that it would have to ask about",
    "yolo": "asks about nothing: it runs any command and changes any file as you can",
}
_SHELLS = ("run_shell_command", "ShellTool")
"""The names that the client takes for the tool that runs any command."""
_is_tool = re.compile(r"[A-Za-z][A-Za-z0-9_-]*").fullmatch
_LONGEST_PROMPT = 8 * 1024 * 1024
"""Bytes of a prompt that the client reads; it drops the rest with a warning."""
_TEMPORARY = "/tmp"  # noqa: S108, where no other is named
_LOOK = 0.1
"""Seconds between looks at the chat file."""


class GeminiSession:
    """One session. Between turns it has no process, only its files.

    Args:
        is_known: the client has the session's chat file, so it is resumed.
    """

    def __init__(self, spec: SessionSpec, *, is_known: bool) -> None:
        self._spec = spec
        self._patience = spec.host.patience
        self._is_known = is_known
        self._program: Program | None = None
        self._turn: JoinedTurn | None = None
        self._follower: PendingFollower | None = None
        self._instructions: Path | None = None
        self._is_opened = False
        # The prompt of the turn, until its block was yielded.
        self._unseen_prompt: Block | None = None

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn, which succeeds if the client's result says so.

        Raises `ProviderError` of the kinds in the table of docs/clients/gemini.md, "Running", and
        ``text-only``, ``prompt-too-long``, ``permission-mode``, ``no-client``, ``no-folder`` and
        ``session-open`` before anything is started.
        """
        check_closed(self._spec)
        prompt = _prompt_bytes(content)
        self._unseen_prompt = make_block(
            "user_message",
            f"#{self._spec.new_id()}:p",
            MAIN,
            self._spec.native_id,
            self._spec.now(),
            None,
            content=content,
        )
        failed = yield from self._run(prompt)
        if failed is not None and failed.kind == "no-conversation" and self._is_bare():
            # The client neither resumes a session without an answer, nor starts another with its
            # id.
            self.stop()
            self._is_known = False
            self._name(self._spec.new_id())
            failed = yield from self._run(prompt)
        if failed is not None:
            yield from self._missing_prompt()
            raise failed

    def _missing_prompt(self) -> Iterator[StreamEvent]:
        """Yield the prompt's block if neither stdout nor the chat file had it."""
        if self._unseen_prompt is not None:
            yield blocks.block_complete(self._unseen_prompt["id"], self._unseen_prompt)
            self._unseen_prompt = None

    def _note(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        for event in events:
            if (event.get("block") or {}).get("type") == "user_message":
                self._unseen_prompt = None
            yield event

    def _run(self, prompt: bytes) -> Generator[StreamEvent, None, ProviderError | None]:
        """Run the client once; return why it failed."""
        environment = environment_of(self._spec.host, _NOT_INHERITED) | _OUR_VARIABLES
        command = self._command(environment)
        follower = PendingFollower(lambda: moving.main_file(self._spec, by_hash=self._by_hash))
        if self._is_known:
            follower.pass_over(self._spec.earlier())
        self._follower = follower
        turn = self._turn = JoinedTurn(GeminiTranslator(), follower)
        program = self._program = Program(
            command, cwd=self._spec.cwd, environment=self._instructed(environment)
        )
        self._spec.host.on_start(program.process)
        program.write(prompt)
        program.close_input()
        while not program.is_over:
            for line in program.lines(_LOOK):
                yield from self._handle_line(turn, line)
            yield from self._note(turn.poll())
            if is_settled(turn) or program.wait(0) is not None:
                # A descendant may hold its output open, or it may print more.
                for line in program.lines(self._patience):
                    yield from self._handle_line(turn, line)
                break
        yield from self._note(turn.end())
        code = program.wait(self._patience if program.is_over else 0)
        return failure(turn, code, program.errors)

    def _handle_line(self, turn: JoinedTurn, line: bytes) -> Iterator[StreamEvent]:
        was_named = bool(turn.session_id)
        events = list(turn.line(line))
        if turn.session_id and turn.session_id != self._spec.native_id:
            self._name(turn.session_id)
        if self._is_known and turn.session_id and not was_named:
            # By now the client uses the session's own file. Until its stub is removed, another
            # client that starts would delete both.
            remove_stubs(self._chats, self._spec.native_id)
            if self._follower is not None:
                self._follower.look_again()
        yield from self._note(events)

    def _name(self, native_id: str) -> None:
        """Continue under the client's own id. Raises `ProviderError` for an invalid id."""
        if not ID.fullmatch(native_id):
            raise ProviderError(
                f"the client calls the session {native_id[:100]!r}, which is no id",
                hint="is the program in config.toml the client itself?",
                kind="bad-native-id",
            )
        self._spec = self._spec._replace(native_id=native_id)
        self._spec.host.on_native_id(native_id)

    def _is_bare(self) -> bool:
        """Tell whether the client's file of this session has no answer that could be lost."""
        return not has_answer(self._chats, self._spec.native_id)

    def at_terminal(self) -> TerminalProgram:
        """Return the program. An older client that cannot be given an id begins no session."""
        check_closed(self._spec)
        environment = environment_of(self._spec.host, _NOT_INHERITED) | _OUR_VARIABLES
        command = self._command(environment, protocol=())
        if not command[-1].startswith(("--resume=", "--session-id=")):
            raise ProviderError(
                "this version of the client takes no id for a session that it begins",
                hint="`agentsdir send` begins it; then it can be opened",
                kind="no-session",
            )
        self._is_opened = True
        return TerminalProgram(tuple(command), self._instructed(environment))

    def interrupt(self) -> Iterator[StreamEvent]:
        """Ask the client to stop. It drops its last answer; its output until then is kept."""
        program, turn = self._program, self._turn
        if program is None or turn is None:
            return
        program.signal(signal.SIGINT)
        for line in program.lines(self._patience):
            yield from self._handle_line(turn, line)
        yield from self._note(turn.end())
        yield from self._missing_prompt()

    def suspend(self) -> bytes:
        """Return nothing: the chat file is enough (decision D23)."""
        return b""

    def stop(self) -> None:
        """End the client and all its processes, and remove its stubs and the prompt file."""
        if self._program is not None:
            self._program.end(self._spec.host.marks)
        if self._program is not None or self._is_opened:
            remove_stubs(self._chats, self._spec.native_id)
        if self._instructions is not None:
            with suppress(OSError):
                self._instructions.unlink()
            self._instructions = None

    def transcripts(self) -> list[NativeFile]:
        return moving.session_files(self._spec, by_hash=self._by_hash)

    @cached_property
    def _by_hash(self) -> bool:
        return names_by_hash(self._spec.host)

    @property
    def _chats(self) -> Path:
        return project_folder(self._spec, by_hash=self._by_hash) / CHATS

    def _command(
        self,
        environment: dict[str, str],
        *,
        protocol: tuple[str, ...] = ("--output-format=stream-json",),
    ) -> list[str]:
        spec = self._spec
        if spec.host.permission_mode not in ("", *MODES):
            raise ProviderError(
                f"Gemini CLI has no permission mode {spec.host.permission_mode!r}",
                hint=f"it has {', '.join(MODES)}",
                kind="permission-mode",
            )
        command = command_of(spec.host, COMMAND, "Gemini CLI", environment)
        opening = ""
        if self._is_known:
            opening = f"--resume={spec.native_id}"
        elif takes_session_id(command, environment):
            opening = f"--session-id={spec.native_id}"
        options = [
            ("--model", spec.model),
            ("--approval-mode", spec.host.permission_mode),
            ("--allowed-tools", ",".join(filter(_is_tool, spec.host.allowed))),
        ]
        # One word for each: a value may begin with a hyphen.
        chosen = [f"{name}={value}" for name, value in options if value]
        return [*command, *protocol, *chosen, *filter(None, [opening])]

    def _instructed(self, environment: dict[str, str]) -> dict[str, str]:
        """Return the environment with the system prompt, which the client reads from a file."""
        if not self._spec.system_prompt:
            return environment
        if self._instructions is None:
            folder = environment.get("TMPDIR") or _TEMPORARY
            try:
                descriptor, name = tempfile.mkstemp(".md", "agentsdir-", folder, text=False)
                with open(descriptor, "wb") as file:  # noqa: PTH123, a descriptor
                    file.write(self._spec.system_prompt.encode("utf-8", "replace"))
            except OSError as error:
                raise ProviderError(
                    f"cannot write the system prompt into {folder}: {error.strerror}",
                    hint="TMPDIR says where",
                    kind="no-folder",
                ) from error
            self._instructions = Path(name)
        return environment | {"GEMINI_SYSTEM_MD": str(self._instructions)}


def _prompt_bytes(content: Content) -> bytes:
    """Return a prompt as text for stdin. Raises `ProviderError` for images, or a long one."""
    if not isinstance(content, str):
        if any(part.get("type") != "text" for part in content):
            raise ProviderError(
                "this client takes no image in a prompt",
                hint="put the file into the workspace, and write @path/to/it in the prompt",
                kind="text-only",
            )
        content = "\n\n".join(str(part.get("text", "")) for part in content)
    prompt = content.encode("utf-8", "replace")
    if len(prompt) > _LONGEST_PROMPT:
        raise ProviderError(
            f"the prompt has {len(prompt)} bytes, and the client reads {_LONGEST_PROMPT}",
            hint="put it into a file in the workspace, and write @path/to/it in the prompt",
            kind="prompt-too-long",
        )
    return prompt


def check_closed(spec: SessionSpec) -> None:
    """Raise `ProviderError` (kind ``session-open``) while another client has the session open."""
    store_files.check_closed(open_sessions(host_storage(spec.host)), spec.native_id)


class GeminiProvider:
    """Opens sessions of Gemini CLI, under an id of our choice where the version takes one.

    There are no options: those of the client, except the model, loosen its permissions (decision
    D33).
    """

    option_names: tuple[str, ...] = ()
    default_model = ""
    runs_program = True
    settings = ProviderSettings(modes=MODES)

    def create(self, spec: SessionSpec) -> GeminiSession:
        return GeminiSession(spec, is_known=False)

    def restore(self, spec: SessionSpec, state: bytes) -> GeminiSession:
        """Reopen a session from its chat file alone, or begin one without a chat file."""
        del state
        self.materialize(spec)
        own = store.own_files(spec.transcripts, spec.native_id)
        return GeminiSession(spec, is_known=bool(own))

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        return moving.fork(transcripts, old_id, new_id, report)

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        return moving.session_files(spec, by_hash=names_by_hash(spec.host))

    def materialize(self, spec: SessionSpec) -> list[Path]:
        check_closed(spec)
        return moving.materialize(spec, by_hash=names_by_hash(spec.host))

    def is_continuation(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Tell whether a rewritten chat file still has all that the saved one has."""
        del ours  # a loss is a loss in any turn
        return moving.is_continuation(saved, present)

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        return profile.files(".gemini", "GEMINI.md")

    def read_rule(self, text: str) -> RuleMeaning:
        """Return what a rule means: a tool. The client reads a command as the beginning of one."""
        if _is_tool(text):
            return RuleMeaning(text, is_wide=text in _SHELLS)
        problem = "Gemini CLI takes names of tools, such as write_file"
        if text.partition("(")[0] in _SHELLS:
            problem = "Gemini CLI reads a command as the beginning of one, which allows much more"
        return RuleMeaning(text, problem=problem)
