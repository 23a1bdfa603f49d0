"""A session as an application shows it, and the adapter of an architecture by itself.

docs/library.md, "AgentSession".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict, Unpack

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import ProgramProvider
from agentsdir.engine.app.app import BaseApp, check_names, find_whole
from agentsdir.engine.app.component import AgentConfig, always
from agentsdir.engine.parse import FoundSession, parse_session
from agentsdir.engine.providers import provider_errors, provider_of, write_missing
from agentsdir.engine.replay import replay
from agentsdir.engine.session_data import runtime_session
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import MAIN
from agentsdir.formats.errors import UsageError
from agentsdir.formats.jsontext import LongList, LongText
from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from agentsdir.adapters.protocol import (
        Architecture,
        Content,
        Profile,
        Provider,
        ProviderSession,
        SessionSpec,
        TranscriptReader,
    )
    from agentsdir.engine.app.execution import Execution
    from agentsdir.engine.app.prompt import Input
    from agentsdir.engine.app.session import Session
    from agentsdir.engine.callbacks import Callbacks
    from agentsdir.engine.create import NewAgent
    from agentsdir.engine.services import Services
    from agentsdir.formats.blocks import StreamEvent


class SessionRequest(TypedDict, total=False):
    """Which session an `AgentSession` is of, given by name.

    Attributes:
        session_id: the id of a session, or the id or name of its agent; without it one is made.
        architecture: of a new session: its name, or that of its adapter, or an adapter of this
            program (`model_provider`); the user's default without it.
        agent_profile_ref: the name of a profile of the agents directory, for a new session.
        model: of its turns, as the settings after it; without it that which it has.
        system_prompt: the system prompt.
        cwd: the working directory.
        options: the provider's own settings, for a new session.
        callbacks: called for its turns.
    """

    session_id: str
    architecture: str | Architecture
    agent_profile_ref: str
    model: str
    system_prompt: str
    cwd: str
    options: Mapping[str, str]
    callbacks: Callbacks


class MessageStream:
    """The stream events of one message's turn, as they come, for `for` and for `async for`.

    The turn runs whether they are read or not, and each reading begins with the first. A reading
    raises at its end what `Execution.result` raises.

    Attributes:
        execution: the turn, with its result, and how it is ended early.
    """

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    def __iter__(self) -> Iterator[StreamEvent]:
        yield from self.execution
        self.execution.wait()

    async def __aiter__(self) -> AsyncIterator[StreamEvent]:
        from agentsdir.engine.app.asynchronous import AsyncExecution  # asyncio is slow to import

        execution = AsyncExecution(self.execution)
        async for event in execution:
            yield event
        await execution.result


class BaseAgentSession:
    """A session of any architecture: it is sent messages, and has its conversation as blocks.

    Attributes:
        session: the same one with all that `Session` offers.
    """

    def __init__(self, session: Session) -> None:
        self.session = session

    @classmethod
    def open(
        cls, services: Callable[[], Services], new: NewAgent, **wanted: Unpack[SessionRequest]
    ) -> Self:
        """Return a new session, or the one that a request names, which may be closed.

        Args:
            services: as for `BaseApp`.
            new: the same.
            wanted: see `SessionRequest`.

        Raises `NoSuchAgent` for a session that is not there, `UsageError` for an architecture,
        profile or options of one that is, and what `create_agent` raises.
        """
        check_names(wanted, SessionRequest)
        named = wanted.get("architecture", "")
        config = AgentConfig(
            provider=registry.find(named).name if named and isinstance(named, str) else named,
            profile=wanted.get("agent_profile_ref", ""),
            model=wanted.get("model", ""),
            system=wanted.get("system_prompt", ""),
            cwd=wanted.get("cwd", ""),
            options=wanted.get("options", {}),
        )
        app = BaseApp(always(config), services, new)
        callbacks = wanted.get("callbacks")
        session_id = wanted.get("session_id", "")
        if not session_id:
            return cls(app.session(callbacks=callbacks))
        if config.provider or config.profile or config.options:
            raise UsageError(
                "a session keeps the architecture, profile and options that it was made with",
                hint="leave them out, or leave out the session's id to make a new one",
            )
        paths, _ = find_whole(services().layout, session_id)
        return cls(app.session_of(paths, callbacks=callbacks))

    @property
    def session_id(self) -> str:
        """The id of the session, by which it is found again: 32 hex digits."""
        return read_agent(self.session.paths).state.session.id

    def send_message(self, content: Input) -> MessageStream:
        """Send a message, and return the stream events of its turn, which has begun.

        Turns of one session are in the order of the calls.
        """
        return MessageStream(self.session.send(content))

    def get_state(self) -> dict[str, Any]:
        """Return the session as it is on disk: RuntimeSessionData (`inspect` in docs/commands.md).

        It is what `agentsdir inspect --runtime` prints: `blocks`, `subagents` with their `blocks`,
        `rawTranscript`, and what `list` shows. All of it is held in memory.
        """
        paths = self.session.paths
        layout = self.session.app.services().layout
        state = _held(runtime_session(layout, paths, read_agent(paths).state))
        assert isinstance(state, dict)
        return state

    @property
    def events(self) -> Iterator[StreamEvent]:
        """The conversation up to now as stream events, for what shows live ones.

        They are what `agentsdir replay` prints: each block complete, again where it has changed,
        and the end of each turn. The log is read as they are asked for.
        """
        notify = self.session.app.services().notify_user
        return replay(self.session.paths, lambda finding: notify(str(finding)))


def _held(value: Any) -> Any:
    """Return a document with its long lists and texts in memory."""
    if isinstance(value, LongText):
        return "".join(value.pieces())
    if isinstance(value, LongList):
        return [jsontext.decode(line) for line in value.lines()]
    if isinstance(value, dict):
        return {name: _held(item) for name, item in value.items()}
    return [_held(item) for item in value] if isinstance(value, list) else value


class SandboxPaths(NamedTuple):
    """The folders of a sandbox: the client's storage, its transcripts in that, the workspace."""

    storage: Path
    transcripts: Path
    workspace: Path


class BaseAgentSandbox:
    """One session of an architecture in a working directory, through its adapter alone.

    It knows no agents directory: nothing of what it does is logged. What it has to keep of the
    session, `transcripts` returns.

    Args:
        architecture: by its name, or that of its adapter.
        spec: the session, and the machine around it.
        workspace: the working directory.
        write_file: writes a file of the workspace, given its relative path, where that is not on
            this machine; without it, files that are missing are written.
    """

    def __init__(
        self,
        architecture: str,
        spec: SessionSpec,
        workspace: Path,
        write_file: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._adapter = registry.find(architecture)
        host = spec.host._replace(on_native_id=self._take_id)
        self._spec = spec._replace(host=host, cwd=str(workspace))
        self._workspace = workspace
        self._write_file = write_file
        self._files: dict[str, Source] = {}
        self._turns = 0

    @property
    def session_id(self) -> str:
        """The id of the session in the architecture's own program."""
        return self._spec.native_id

    def get_paths(self) -> SandboxPaths:
        """Return where the architecture keeps its files. Raises `UsageError` without a reader."""
        host = self._spec.host
        variables = {**host.variables, **host.environment}
        found = self._reader.paths(host.home, self._workspace, variables)
        return SandboxPaths(found.storage, found.transcripts, self._workspace)

    def setup_agent_profile(self, profile: Profile) -> list[str]:
        """Write a profile where the architecture looks for it; return the paths that it wrote.

        A provider that runs no program has no such place. Raises `AgentsdirError` when the system
        refuses.
        """
        provider = self._provider
        if not isinstance(provider, ProgramProvider):
            return []
        files = provider.workspace_files(profile)
        if self._write_file is None:
            return [one["path"] for one in write_missing(self._workspace, files).written]
        for name, data in sorted(files.items()):
            self._write_file(name, data)
        return sorted(files)

    def setup_session_transcripts(self, transcripts: Mapping[str, bytes]) -> None:
        """Take the saved files of the session, and write them where the architecture looks.

        Args:
            transcripts: by path, as `transcripts` returned them.

        Raises what `ProgramProvider.materialize` raises.
        """
        self._files = {name: Source(name, data=data) for name, data in transcripts.items()}
        if isinstance(self._provider, ProgramProvider):
            self._provider.materialize(self._spec._replace(transcripts=self._files))
        said = self.parse_transcripts()["blocks"]
        self._turns = sum(block["type"] == "user_message" for block in said)

    def execute_query(
        self, query: Content, *, is_new_session: bool | None = None
    ) -> Iterator[StreamEvent]:
        """Run one turn, and yield its stream events; it ends where they are no longer read.

        Args:
            query: text, or text and image parts.
            is_new_session: whether to begin a session; None does if there are no files of it yet.

        Raises `ProviderError` when the turn fails.
        """
        provider = self._provider
        files = {} if is_new_session else self._saved(provider)
        self._turns += 1
        spec = self._spec._replace(turn=self._turns, transcripts=files)
        is_new_session = not files if is_new_session is None else is_new_session
        with provider_errors():
            session = provider.create(spec) if is_new_session else provider.restore(spec, b"")
            try:
                yield from session.send(query)
            finally:
                self._end(session)

    def transcripts(self) -> dict[str, bytes]:
        """Return the files of the session as they stand now, by their paths in the storage."""
        return {name: source.read() for name, source in self._saved(self._provider).items()}

    def parse_transcripts(
        self, transcripts: str | Mapping[str, bytes] | None = None
    ) -> dict[str, Any]:
        """Return a session's `blocks`, and its `subagents`, each with `id` and `blocks`.

        Args:
            transcripts: a main transcript as text, such as `rawTranscript` of a stored session, or
                files by path; None for those of this session.

        Raises `UsageError` if the architecture has no reader, and `AgentsdirError` if a file cannot
        be read or the adapter fails.
        """
        if isinstance(transcripts, str):
            transcripts = {self._spec.native_id: transcripts.encode()}
        if transcripts is None:
            sources = list(self._saved(self._provider).values())
        else:
            sources = [Source(name, data=data) for name, data in transcripts.items()]
        with registry.adapter_errors(self._adapter):
            sessions = self._reader.discover(sources)
        threads: dict[str, list[Any]] = {MAIN: []}
        for files in sessions:
            sink = parse_session(FoundSession(self._adapter, files), hidden=False)
            for block in sink.blocks():
                threads.setdefault(block["conversationId"], []).append(block)
        main = threads.pop(MAIN)
        subagents = [{"id": name, "blocks": blocks} for name, blocks in threads.items()]
        return {"blocks": main, "subagents": subagents}

    @property
    def _reader(self) -> TranscriptReader:
        if self._adapter.reader is None:
            raise UsageError(f"the adapter {self._adapter.name!r} reads no transcripts")
        return self._adapter.reader

    @property
    def _provider(self) -> Provider:
        return provider_of(self._adapter.name)[1]

    def _saved(self, provider: Provider) -> dict[str, Source]:
        """Return the files that were set up or left by a turn, or that the client's store has."""
        if self._files or not isinstance(provider, ProgramProvider):
            return self._files
        return {file.path: file.source for file in provider.native_files(self._spec)}

    def _end(self, session: ProviderSession) -> None:
        try:
            self._files = {file.path: file.source for file in session.transcripts()}
        finally:
            session.stop()

    def _take_id(self, native_id: str) -> None:
        """Take another id that the client gave the session."""
        self._spec = self._spec._replace(native_id=native_id)
