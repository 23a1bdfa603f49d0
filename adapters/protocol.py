"""The contract of an adapter: its two sides, and the values they take and return.

An adapter publishes an `Architecture`, which has a `TranscriptReader`, a `Provider`, or both.

- A reader turns the architecture's own files into blocks. It gets bytes by name and knows nothing
  of agents directories. `StoreReader` adds the client's own store, `OutputReader` the client's
  standard output.
- A provider runs turns: `create` or `restore` opens a `ProviderSession`, whose `send` streams
  events. `ProgramProvider` adds what only the sessions of a real client have.

Third parties publish an `Architecture` under the entry-point group ``agentsdir.adapters``
(docs/adapters.md). Classes that implement a protocol do not repeat its docstrings.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agentsdir.formats.block_lines import BlockStore
    from agentsdir.formats.blocks import Block, StreamEvent
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.sink import ParseSink
    from agentsdir.formats.source import Source

    # Takes the error of a file or folder that cannot be read; the caller continues without it.
    Refuse = Callable[[OSError], None]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Architecture(NamedTuple):
    """One adapter: its short name, the architecture's name in descriptors, and its sides."""

    name: str
    architecture: str
    summary: str
    reader: TranscriptReader | None = None
    provider: Provider | None = None


# Reading: files, sessions, and the client's store.

MIN_NATIVE_PREFIX = 8
"""How many characters of a native id are needed to find its session."""


class Transcript(NamedTuple):
    """One transcript file of a session.

    `role` is "main" or "subagent". `sidecar` is a small file that describes the transcript.
    `skipped` names sessions, or entries, in the file that are read from other files; `rewound`
    names entries that a rewind removed from their session's own file, which are read here.
    """

    source: Source
    role: str
    sidecar: Source | None = None
    skipped: frozenset[str] = frozenset()
    rewound: frozenset[str] = frozenset()


class SessionFiles(NamedTuple):
    """The files of one session: the main transcript first, if there is one, then its subagents'.

    `remarks` are findings that need a look at all files.
    """

    transcripts: tuple[Transcript, ...]
    remarks: tuple[Finding, ...] = ()


class Paths(NamedTuple):
    """Where an architecture keeps its files for one user and working directory."""

    storage: Path
    transcripts: Path


class NativeSession(NamedTuple):
    """One session of the real client as a list shows it, from the head and tail of its file.

    `created` and `modified` are RFC 3339; `size` is in bytes. `cwd`, `title` and `branch` are empty
    where the file does not name them.
    """

    id: str
    file: Path
    cwd: str
    title: str
    branch: str
    created: str | None
    modified: str
    size: int


class NativeFile(NamedTuple):
    """A file of a session as it stands now.

    `path` is relative to the architecture's storage, with `/`; `role` is "main", "subagent",
    "sidecar" or "output" (a file that a transcript refers to).
    """

    path: str
    role: str
    source: Source


class Adoptable(NamedTuple):
    """A session of the real client that an agent can continue.

    Texts are empty where the files do not name them. `files` are under their native paths.
    """

    id: str
    cwd: str
    model: str
    title: str
    files: tuple[NativeFile, ...]


class TranscriptReader(Protocol):
    """Reads the transcripts of an architecture. No method raises for what the bytes hold."""

    def detect(self, head: bytes, name: str) -> bool:
        """Tell whether bytes are of this architecture.

        Args:
            head: the first 64 KiB, which may end within a line. If no adapter recognises them, the
                method is called again with more of the file.
            name: the file's name, which is a hint at most.
        """

    def paths(self, home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
        """Return where the real client keeps its transcripts."""

    def discover(self, sources: Sequence[Source]) -> list[SessionFiles]:
        """Group transcripts that `detect` accepted, and the files beside them, into sessions.

        `sources` are all files given, or all files of a folder, in order. A subagent's file belongs
        to its main transcript where both are there, so that nothing is printed twice.
        """

    def parse_transcripts(self, session: SessionFiles, sink: ParseSink) -> None:
        """Read a whole session into `sink`."""


class ReaderState(NamedTuple):
    """Where a reading of a session ended, so that a later one continues there.

    `size` is how many bytes of the main transcript were read, all of them whole lines. `state` is a
    value of JSON that only the reader understands.
    """

    size: int
    state: dict[str, Any]


@runtime_checkable
class ResumableReader(TranscriptReader, Protocol):
    """A reader that can read on where it ended, in another process."""

    def resume(
        self,
        session: SessionFiles,
        sink: ParseSink,
        reading: ReaderState | None,
        *,
        keeps: bool = True,
    ) -> ReaderState | None:
        """Read a session into `sink`, and return where that ends, unless `keeps` is False.

        Without a `reading`, the whole session is read, as `parse_transcripts` does. With one, the
        sink gets the blocks of later rows and files, each as a whole reading gives it, and in its
        order. It may get earlier ones; all that it does not get have the keys of before. The
        main transcript still begins with the bytes that were read, and the subagents' files that
        were read have not changed.

        Returns None where a later reading has to begin at the first byte. May raise any error for a
        `reading` that it did not make, and where later rows need what it does not have: the caller
        then reads the whole session.
        """


@runtime_checkable
class StoreReader(TranscriptReader, Protocol):
    """A reader that knows the client's own store, and reads while the client writes there."""

    def is_storage(self, folder: Path) -> bool:
        """Tell whether a folder is a client's storage, which holds secrets beside transcripts.

        Only the files that `transcripts` names may be opened in one.
        """

    def transcripts(self, storage: Path, refuse: Refuse) -> Iterator[Path]:
        """Yield every transcript below the storage folder, main or subagent, in order."""

    def sessions(self, storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
        """Yield the sessions below the storage folder, the one written last first.

        Only the heads and tails of files are read. Sessions without content are left out.
        """

    def open_sessions(self, storage: Path) -> Iterator[tuple[str, Process]]:
        """Yield the id of each session that a running client is seen to have open, and the client.

        It may be an id that the store has not. A session that is not among them may be open, too.
        """

    def locate(self, storage: Path, native_id: str) -> list[Path]:
        """Return the main transcripts of an id below the storage folder, best first.

        `native_id` may be the beginning of ids, from `MIN_NATIVE_PREFIX` characters on.
        """

    def native_id(self, main: Path) -> str:
        """Return the id of the session whose main transcript is at `main`; empty for none."""

    def files(self, main: Path) -> SessionFiles:
        """Return the session whose main transcript is at `main`, with its subagents' files."""

    def adoptable(self, main: Path) -> Adoptable:
        """Return the session whose main transcript is at `main`, with every file that is its own.

        Raises `Invalid` (kind ``bad-native-id``) when the client would not accept its id.
        """

    def follow(self, main: Path, *, hidden: bool = False, alone: bool = False) -> Follower:
        """Return a follower of the session whose main transcript is, or will be, at `main`.

        Args:
            main: the file; it need not exist yet.
            hidden: also yield blocks marked `hidden`.
            alone: follow this file only, without subagents' files beside it.
        """


@runtime_checkable
class OutputReader(TranscriptReader, Protocol):
    """A reader that also reads what the client prints."""

    def translate_stream(self) -> Translator:
        """Return a translator for the standard output of one run."""


@runtime_checkable
class LiveReader(StoreReader, OutputReader, Protocol):
    """A reader of a client's store and of its output."""


class Follower(Protocol):
    """Tails a session: its main transcript, and the subagents' files that appear beside it.

    No method raises for what the bytes hold.
    """

    @property
    def blocks(self) -> BlockStore:
        """The completed blocks, each as the events yielded so far left it."""

    def poll(self) -> Iterator[StreamEvent]:
        """Yield what was written since the last call: completed blocks, and updates of them.

        A file that does not exist yet, or a line without an end, is waited for. A file that shrank
        or was rewritten is read again, and only the differences are yielded.
        """

    def end(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles: an unterminated last line, calls without a result."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the files so far."""


class Translator(Protocol):
    """Turns a client's standard output into stream events, one line at a time.

    The blocks that it completes equal those of the transcript (decision D21). No method raises for
    what the bytes hold.
    """

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        """Take one line, with or without its LF."""

    def end(self) -> Iterator[StreamEvent]:
        """Complete the open blocks, because no more lines come."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the lines so far."""


# Running: the environment of a session, and the sessions themselves.

Content: TypeAlias = str | list[dict[str, Any]]
"""Text, or the text and image parts of a prompt, as in UserMessageBlock.content."""

RECORDABLE_MODES = ("default", "plan")
"""The permission modes that grant nothing beyond a client's default: a log may ask for these."""


def never() -> bool:
    """Return False."""
    return False


class ToolRequest(NamedTuple):
    """A tool call that the client does not run without permission.

    `rule` means this tool, or this command of it, and nothing else, in the client's own form; it is
    empty where there is no such rule. `is_void` returns whether the client has ended, so that no
    decision is of use to it.
    """

    tool_name: str
    tool_use_id: str
    input: Any
    conversation: str = "main"
    rule: str = ""
    is_void: Callable[[], bool] = never


class Decision(NamedTuple):
    """The answer to a `ToolRequest`.

    `input` replaces the call's, `reason` goes to the model. `rule` is one that the client may
    follow from now on, until this run of it ends, without asking; empty for none.
    """

    allowed: bool
    reason: str = ""
    input: Any = None
    rule: str = ""


def settings_of(provider: Provider) -> ProviderSettings:
    """Return which settings of an agent a provider heeds."""
    said = getattr(provider, "settings", None)
    return said if isinstance(said, ProviderSettings) else ProviderSettings()


def runner_methods_of(provider: Provider) -> frozenset[str]:
    """Return the methods of an execution runner that a provider honours."""
    said = getattr(provider, "runner_methods", None)
    return said if isinstance(said, frozenset) else frozenset()


def deny_all(request: ToolRequest) -> Decision:
    """Refuse every call; the default where there is no user to ask."""
    return Decision(allowed=False, reason=f"no user could be asked about {request.tool_name}")


class Process(NamedTuple):
    """A running program: its process id, and its start time in clock ticks since boot."""

    pid: int
    started: int


class Host(NamedTuple):
    """The machine and the user around a provider that runs a program (decision D33).

    `command` is the program and its first arguments; when it is empty, the provider's own name on
    the search path. `variables` are those of this process. The program gets them, `environment`,
    and `marks`, which name the turn that it serves: all its descendants carry them.
    `permission_mode` is the client's own word, empty for the client's default. `allowed` are rules
    of the user's, in the client's own form, for calls that it need not ask about: an adapter hands
    over those that its client reads as exactly what they say. `confirm` answers tool calls that
    need permission; it knows the rules, too. `decide` is asked about every tool call before that,
    and what it allows still needs the permission it would; None where nothing is to be asked. It is
    for a provider with `execute_tool_call` among its `runner_methods`. `on_start` is called with
    the program's process before it gets a prompt, `on_native_id` with the session's id when the
    client chooses another than it was given. `patience` is how many seconds the program has to exit
    after its answer, or after an interrupt.
    """

    home: Path
    variables: Mapping[str, str] = _NOTHING
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = _NOTHING
    marks: Mapping[str, str] = _NOTHING
    permission_mode: str = ""
    allowed: tuple[str, ...] = ()
    confirm: Callable[[ToolRequest], Decision] = deny_all
    decide: Callable[[ToolRequest], Decision] | None = None
    on_start: Callable[[Process], None] = lambda _process: None
    on_native_id: Callable[[str], None] = lambda _native_id: None
    patience: float = 10.0


class EarlierReading(NamedTuple):
    """What was read of a session before: where that ended, and whether a block (by key) was in it.

    All keys of blocks that were in it are known; one of 2^60 others is taken for such a key.
    """

    end: ReaderState
    has: Callable[[tuple[str, str]], bool]


class SessionSpec(NamedTuple):
    """What a provider needs to open a session.

    `native_id` is the id to use with the architecture's own program. `transcripts` are the saved
    files of that native session, by native relative path. `restore` is called where there are any,
    else `create`. After a crash there may be files whose session the log does not name; a `restore`
    that finds none of its id begins a new session. `options` are the provider's own settings
    (``--option name=value``). `turn` is the number of the turn about to run, from 1, failed turns
    included; 0 when none is. A provider has no clock and no random numbers of its own: `now`
    returns RFC 3339 timestamps, `sleep` waits some seconds, `new_id` returns fresh UUIDs. `host` is
    for providers that run a program. `compared` are names of saved files, each with the client's
    own file that was just found to begin with its bytes. `earlier` returns where the last reading
    of the client's own files ended, which is in the saved ones, if that is known.
    """

    native_id: str
    model: str
    system_prompt: str
    cwd: str
    now: Callable[[], str]
    sleep: Callable[[float], None]
    new_id: Callable[[], str]
    turn: int = 0
    options: Mapping[str, str] = _NOTHING
    transcripts: Mapping[str, Source] = _NOTHING
    host: Host = Host(Path("/nonexistent"))
    compared: frozenset[tuple[str, Path]] = frozenset()
    earlier: Callable[[], EarlierReading | None] = lambda: None


class Profile(NamedTuple):
    """An agent profile to write into a workspace: instructions, and files by relative path."""

    instructions: str
    skills: Mapping[str, bytes]
    agents: Mapping[str, bytes]

    def files(self, folder: str, instructions: str) -> dict[str, bytes]:
        """Return the files by their paths in a workspace.

        Args:
            folder: the client's folder there, in which it looks for skills and agents.
            instructions: the path of the file that it reads first.
        """
        found = {f"{folder}/skills/{name}": data for name, data in self.skills.items()}
        found |= {f"{folder}/agents/{name}": data for name, data in self.agents.items()}
        if self.instructions:
            found[instructions] = self.instructions.encode()
        return found


class ProviderSession(Protocol):
    """A running session of one provider."""

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn and stream it, the prompt's own `user_message` block included.

        Raises `ProviderError` when the turn fails; what was yielded before still happened. After an
        exception that comes from outside (a signal), the caller uses `interrupt` or `stop`.
        """

    def interrupt(self) -> Iterator[StreamEvent]:
        """Ask the running turn to end, and yield its last events. Nothing runs afterwards."""

    def suspend(self) -> bytes:
        """Return an opaque blob that makes `restore` faster. It is never needed (decision D23)."""

    def stop(self) -> None:
        """End the session and every process that it started. A second call does nothing."""

    def transcripts(self) -> Sequence[NativeFile]:
        """Return the session's native files as they stand now."""


class ToolCall(NamedTuple):
    """A call of a tool: its name, its input, and the id that its result names."""

    name: str
    input: Any
    id: str = ""


class ToolResult(NamedTuple):
    """The result of a call that an agent carried out itself; `id` is that of its `ToolCall`."""

    id: str
    output: Any
    is_error: bool = False


class ToolSchema(NamedTuple):
    """A tool as the model gets it; `input_schema` is a JSON Schema of an object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


class ModelRequest(NamedTuple):
    """What a model is called with.

    Attributes:
        content: the prompt of the turn.
        results: the `tool_result` blocks of the calls that the model made before, in their order;
            none for the first model call of a turn.
        tick: the number of the model call within the turn, from 1.
        system: the system prompt; empty for none.
        model: the model's name; empty for the provider's own choice.
        tools: the tools that the model may call.
        timeline: returns the conversation up to now, prompt and results included, as blocks. The
            log is read for it.
        carries_out: returns whether a call of a tool of this name is carried out.
        is_cancelled: returns whether the turn is to end now.
    """

    content: Content
    results: tuple[Block, ...]
    tick: int
    system: str
    model: str
    tools: tuple[ToolSchema, ...]
    timeline: Callable[[], Sequence[Block]]
    carries_out: Callable[[str], bool]
    is_cancelled: Callable[[], bool]


@runtime_checkable
class ModelSession(ProviderSession, Protocol):
    """A session whose model is called from this process, and whose tool calls the engine makes.

    A turn is `prompt`, then `call_model`; while calls of the model are open that are carried out,
    `take_result` for each of them, and `call_model` again. `send` does the same without tools.
    """

    def prompt(self, content: Content) -> StreamEvent:
        """Begin a turn; return the event of the prompt's own `user_message` block."""

    def call_model(self, request: ModelRequest) -> Iterator[StreamEvent]:
        """Call the model once, and stream its answer. Raises `ProviderError`."""

    def take_result(
        self, call: Block, output: Any, duration_ms: int, *, is_error: bool
    ) -> Iterator[StreamEvent]:
        """Take the result of a call, and yield its block, and the call's with its status.

        Args:
            call: the `tool_use` block, as it was completed.
            output: any value of JSON.
        """


class ProviderSettings(NamedTuple):
    """Which settings of an agent a provider heeds.

    `modes` are the permission modes of its client, each with what the agent does in it, as "edits
    files without asking"; None where they are not known. `reports_cost` is whether the ends of its
    turns have a cost.
    """

    model: bool = True
    system_prompt: bool = True
    modes: Mapping[str, str] | None = None
    reports_cost: bool = False


class TerminalProgram(NamedTuple):
    """A client for a person: its command line, and all of its environment."""

    command: tuple[str, ...]
    environment: Mapping[str, str]


@runtime_checkable
class TerminalSession(ProviderSession, Protocol):
    """A session that a person can go on with in the client itself, full-screen at a terminal."""

    def at_terminal(self) -> TerminalProgram:
        """Return the program that goes on with the session.

        `stop` is called when it has ended. Raises `ProviderError`: kind ``session-open`` while
        another client has the session open, ``no-client`` where there is no such program,
        ``no-session`` where the client cannot begin a session of this id.
        """


class Provider(Protocol):
    """Runs the sessions of an architecture.

    `default_model` may be empty: the client's own. `runs_program` tells whether sessions run a
    program of the user's, whose transcripts stand in the client's own store. A provider may have
    `path_options`, the names of options that are paths: for an imported agent these are relative to
    its working directory, and must stay in it. One that heeds other settings than a
    `ProviderSettings` says has one as `settings`. One that honours methods of an execution runner
    has their names as `runner_methods`: `prepare_model_input` and `execute_tool_call` are the two
    that need it.
    """

    option_names: tuple[str, ...]
    default_model: str
    runs_program: bool

    def create(self, spec: SessionSpec) -> ProviderSession:
        """Open a new session. Raises `ProviderError`."""

    def restore(self, spec: SessionSpec, state: bytes) -> ProviderSession:
        """Reopen a session with its full context, also when `state` is empty or garbage.

        Raises `ProviderError`, and what `ProgramProvider.materialize` raises.
        """

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Yield a session's saved transcripts as those of a new session that continues it.

        `report` is called for each damaged line; the copy leaves those out.
        """


@runtime_checkable
class ProgramProvider(Provider, Protocol):
    """A provider whose sessions are those of a real client, in the client's own store."""

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        """Return the session's files as they stand in the client's store; none is no error."""

    def materialize(self, spec: SessionSpec) -> list[Path]:
        """Write the saved transcripts where the client finds them; return what was written.

        This is the seed's `setupSessionTranscripts`. Files that continue the saved ones are left as
        they are. Raises `ProviderError` (kind ``session-open``) when the client has the session
        open, and `Invalid` (kind ``transcript-differs``) where a file with other bytes is in the
        way.
        """

    def is_continuation(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Tell whether a file that was rewritten may replace its saved copy.

        `ours` is whether it was written in a turn that agentsdir ran.
        """

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        """Return the files that a profile puts into a workspace, by relative path.

        This is the seed's `setupAgentProfile`.
        """


class RuleMeaning(NamedTuple):
    """What a rule of a user's means that a client can be allowed tools with.

    `rule` is the rule as it is kept and compared. `is_wide` is whether it allows any command.
    `problem` is why it cannot be kept; empty for none.
    """

    rule: str
    is_wide: bool = False
    problem: str = ""


@runtime_checkable
class PermissionProvider(ProgramProvider, Protocol):
    """A provider whose client takes rules for tools that it may use without asking."""

    def read_rule(self, text: str) -> RuleMeaning:
        """Return what a rule means, in the form of the client's own settings."""


def program_of(provider: Provider) -> ProgramProvider | None:
    """Return a provider as one whose sessions are a real client's; None for any other."""
    if not provider.runs_program:
        return None

    return provider if isinstance(provider, ProgramProvider) else None
