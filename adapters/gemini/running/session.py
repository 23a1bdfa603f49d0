"""One session of Gemini CLI at work: a process of the real client for each turn (decision D11)."""

from __future__ import annotations

import signal
import tempfile
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from agentsdir.adapters.gemini.running import open_sessions, stubs
from agentsdir.adapters.gemini.running.awaiting import AwaitedFollower
from agentsdir.adapters.gemini.running.joined import JoinedTurn
from agentsdir.adapters.gemini.running.translate import StdoutTranslator
from agentsdir.adapters.gemini.running.verdict import failure, is_settled
from agentsdir.adapters.gemini.running.versions import COMMAND, names_by_hash, takes_session_id
from agentsdir.adapters.gemini.store.contents import ID
from agentsdir.adapters.gemini.store.locations import host_storage, project_folder
from agentsdir.adapters.gemini.store.native_files import main_file, session_files
from agentsdir.adapters.gemini.store.projects import CHATS
from agentsdir.adapters.launching import command_of, environment_of
from agentsdir.adapters.programs import Program
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.reading import stream
from agentsdir.formats.reading.blocks import MAIN, make_block

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from agentsdir.adapters.contract import Content, NativeFile, SessionSpec
    from agentsdir.formats.reading.blocks import Block
    from agentsdir.formats.reading.stream import StreamEvent

# What a client that runs us says to its children: ours would take it for its own.
_NOT_INHERITED = frozenset({"GEMINI_CLI"})
# A client that starts itself again would be out of reach of the signal that interrupts it.
_OURS = {"GEMINI_CLI_NO_RELAUNCH": "true"}
MODES = ("", "default", "auto_edit", "yolo", "plan")
_LONGEST_PROMPT = 8 * 1024 * 1024
"""Bytes of a prompt that the client reads; it drops what is beyond with a warning."""
_TEMPORARY = "/tmp"  # noqa: S108, where no other is named
_LOOK = 0.1
"""Seconds between looks at the chat file."""


class GeminiSession:
    """One session; between turns it is nothing but its files.

    Args:
        is_known: the client has the session's chat file, so it is resumed.
    """

    def __init__(self, spec: SessionSpec, *, is_known: bool) -> None:
        self._spec = spec
        self._patience = spec.host.patience
        self._is_known = is_known
        self._program: Program | None = None
        self._turn: JoinedTurn | None = None
        self._follower: AwaitedFollower | None = None
        self._instructions: Path | None = None
        # The prompt of the turn, as long as nothing that was told is it.
        self._untold: Block | None = None

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn. Success is what the client's result says, never its exit code.

        Raises `ProviderError` of the kinds that docs/clients/gemini.md, "Running", has in
        its table, and ``text-only``, ``prompt-too-long``, ``permission-mode``, ``no-client``,
        ``no-folder`` and ``session-open`` before anything is started.
        """
        check_closed(self._spec)
        prompt = _typed(content)
        self._untold = make_block(
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
            # The client neither resumes a session in which nothing was answered, nor lets another
            # have its id.
            self.stop()
            self._is_known = False
            self._name(self._spec.new_id())
            failed = yield from self._run(prompt)
        if failed is not None:
            yield from self._tell_prompt()
            raise failed

    def _tell_prompt(self) -> Iterator[StreamEvent]:
        """Tell the prompt that a client which ended too soon never mentioned."""
        if self._untold is not None:
            yield stream.block_complete(self._untold["id"], self._untold)
            self._untold = None

    def _note(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        for event in events:
            if (event.get("block") or {}).get("type") == "user_message":
                self._untold = None
            yield event

    def _run(self, prompt: bytes) -> Generator[StreamEvent, None, ProviderError | None]:
        """Run the client once; return why it failed."""
        environment = environment_of(self._spec.host, _NOT_INHERITED) | _OURS
        command = self._command(environment)
        follower = AwaitedFollower(lambda: main_file(self._spec, by_hash=self._by_hash))
        if self._is_known:
            follower.pass_over()
        self._follower = follower
        turn = self._turn = JoinedTurn(StdoutTranslator(), follower)
        program = self._program = Program(
            command, cwd=self._spec.cwd, environment=self._instructed(environment)
        )
        self._spec.host.began(program.process)
        program.write(prompt)
        program.close_input()
        while not program.is_over:
            for line in program.lines(_LOOK):
                yield from self._hear(turn, line)
            yield from self._note(turn.poll())
            if is_settled(turn) or program.wait(0) is not None:
                # Something that it started may hold its output open, or it goes on talking.
                for line in program.lines(self._patience):
                    yield from self._hear(turn, line)
                break
        yield from self._note(turn.end())
        code = program.wait(self._patience if program.is_over else 0)
        return failure(turn, code, program.errors)

    def _hear(self, turn: JoinedTurn, line: bytes) -> Iterator[StreamEvent]:
        was_named = bool(turn.session_id)
        told = list(turn.line(line))
        if turn.session_id and turn.session_id != self._spec.native_id:
            self._name(turn.session_id)
        if self._is_known and turn.session_id and not was_named:
            # By now the client has turned to the session's own file. Until its stub is gone,
            # another one that starts would delete both.
            stubs.remove_stubs(self._chats, self._spec.native_id)
            if self._follower is not None:
                self._follower.look_again()
        yield from self._note(told)

    def _name(self, native_id: str) -> None:
        """Go on under another id than the one given. Raises `ProviderError` for what is none."""
        if not ID.fullmatch(native_id):
            raise ProviderError(
                f"the client calls the session {native_id[:100]!r}, which is no id",
                hint="is the program in config.toml the client itself?",
                kind="bad-native-id",
            )
        self._spec = self._spec._replace(native_id=native_id)
        self._spec.host.named(native_id)

    def _is_bare(self) -> bool:
        """Tell whether the client's file of this session has no answer that could be lost."""
        return not stubs.has_answer(self._chats, self._spec.native_id)

    def interrupt(self) -> Iterator[StreamEvent]:
        """Ask the client to stop. It drops what it was saying; its output until then is kept."""
        program, turn = self._program, self._turn
        if program is None or turn is None:
            return
        program.signal(signal.SIGINT)
        for line in program.lines(self._patience):
            yield from self._hear(turn, line)
        yield from self._note(turn.end())
        yield from self._tell_prompt()

    def suspend(self) -> bytes:
        """Return nothing: the chat file says all (decision D23)."""
        return b""

    def stop(self) -> None:
        """End the client and everything that it started, and take away what it left of that."""
        if self._program is not None:
            self._program.end(self._spec.host.marks)
            stubs.remove_stubs(self._chats, self._spec.native_id)
        if self._instructions is not None:
            with suppress(OSError):
                self._instructions.unlink()
            self._instructions = None

    def transcripts(self) -> list[NativeFile]:
        """Return the session's files as they stand in the client's store."""
        return session_files(self._spec, by_hash=self._by_hash)

    @cached_property
    def _by_hash(self) -> bool:
        return names_by_hash(self._spec.host)

    @property
    def _chats(self) -> Path:
        return project_folder(self._spec, by_hash=self._by_hash) / CHATS

    def _command(self, environment: dict[str, str]) -> list[str]:
        spec = self._spec
        if spec.host.permission_mode not in MODES:
            raise ProviderError(
                f"Gemini CLI has no permission mode {spec.host.permission_mode!r}",
                hint=f"it has {', '.join(filter(None, MODES))}",
                kind="permission-mode",
            )
        command = command_of(spec.host, COMMAND, "Gemini CLI", environment)
        opening = ""
        if self._is_known:
            opening = f"--resume={spec.native_id}"
        elif takes_session_id(command, environment):
            opening = f"--session-id={spec.native_id}"
        options = [("--model", spec.model), ("--approval-mode", spec.host.permission_mode)]
        # One word each: a value may begin with a hyphen.
        chosen = [f"{name}={value}" for name, value in options if value]
        return [*command, "--output-format=stream-json", *chosen, *filter(None, [opening])]

    def _instructed(self, environment: dict[str, str]) -> dict[str, str]:
        """Return the environment with the system prompt, which the client takes as a file only."""
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


def _typed(content: Content) -> bytes:
    """Return a prompt as it is typed. Raises `ProviderError` for what cannot be."""
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
    other = open_sessions.holder(host_storage(spec.host), spec.native_id)
    if other is not None:
        raise ProviderError(
            f"session {spec.native_id} is open in another client, process {other.pid}",
            hint="end it there first; two clients would lose each other's answers",
            kind="session-open",
        )
