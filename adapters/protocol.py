"""What an agent architecture offers, what it is handed and what it returns (docs/adapters.md)."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.sink import ParseSink
    from agentsdir.formats.source import Source

    Refuse = Callable[[OSError], None]


# What is handed to an agent architecture, and what it returns (docs/adapters.md, "Adapters").
#
# Its two sides, `TranscriptReader` and `Provider`, are described in `agentsdir.adapters.protocol`.
# Third parties publish an `Architecture` under the entry-point group ``agentsdir.adapters``.

_NOTHING: Mapping[str, Any] = MappingProxyType({})
MIN_NATIVE_PREFIX = 8


class Transcript(NamedTuple):
    """One transcript file of a session; `role` is "main" or "subagent".

    `sidecar` is a small file that describes it; `told` are sessions in it, or entries, that others
    tell better; `rewound` are entries that a rewind took out of their session's file.
    """

    source: Source
    role: str
    sidecar: Source | None = None
    told: frozenset[str] = frozenset()
    rewound: frozenset[str] = frozenset()


class SessionFiles(NamedTuple):
    """The files of one session: the main transcript first, or none, then its children.

    `remarks` are findings that only a look at all files gave.
    """

    transcripts: tuple[Transcript, ...]
    remarks: tuple[Finding, ...] = ()


class Paths(NamedTuple):
    """Where an architecture keeps things for one user and working directory."""

    storage: Path
    transcripts: Path


class NativeSession(NamedTuple):
    """One session of the real client as a list shows it, from the head and tail of its file.

    `created` and `modified` are RFC 3339; `size` is bytes. `cwd`, `title` and `branch` are empty
    where the file does not say.
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
    """A transcript as the provider holds it now.

    `path` is relative to the architecture's storage, with `/`; `role` is "main", "subagent",
    "sidecar" or "output" (a file that a transcript points to).
    """

    path: str
    role: str
    source: Source


class Adoptable(NamedTuple):
    """A session of the real client, for an agent that goes on with it.

    Texts are empty where the files do not say. `files` are under their native paths.
    """

    id: str
    cwd: str
    model: str
    title: str
    files: tuple[NativeFile, ...]


class ToolRequest(NamedTuple):
    """A tool call that the client will not run without permission."""

    tool_name: str
    tool_use_id: str
    input: Any
    conversation: str = "main"


class Decision(NamedTuple):
    """The answer to a `ToolRequest`. `input` replaces the call's, `reason` goes to the model."""

    allowed: bool
    reason: str = ""
    input: Any = None


class Process(NamedTuple):
    """A running program: its process id, and its start time in clock ticks since boot."""

    pid: int
    started: int


def deny_all(request: ToolRequest) -> Decision:
    """Refuse every call: what happens where nobody can be asked."""
    return Decision(allowed=False, reason=f"nobody could be asked about {request.tool_name}")


RECORDABLE_MODES = ("default", "plan")
"""The permission modes that grant nothing beyond a client's default: a log may ask for these."""


class Host(NamedTuple):
    """The machine and the user around a provider that runs a program (decision D33).

    `command` is the program and its first arguments, `()` for the provider's own name on the
    search path. `variables` are this process's; `environment` is added to them for the program,
    and `marks` too, which say whose turn it serves: every descendant carries them.
    `permission_mode` is the client's own word for it, empty for the client's default. `confirm`
    answers tool calls that need permission. `began` is told of the program before it is given a
    prompt, `named` of the session's id when the client chose another than it was given.
    `patience` is how many seconds the program has between its answer, or an interrupt, and its end.
    """

    home: Path
    variables: Mapping[str, str] = _NOTHING
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = _NOTHING
    marks: Mapping[str, str] = _NOTHING
    permission_mode: str = ""
    confirm: Callable[[ToolRequest], Decision] = deny_all
    began: Callable[[Process], None] = lambda _process: None
    named: Callable[[str], None] = lambda _native_id: None
    patience: float = 10.0


class SessionSpec(NamedTuple):
    """What a provider needs to know to open a session.

    `native_id` is the id to use with the architecture's own program. `transcripts` are the saved
    files of that native session, by native relative path. Where there are any, `restore` is called,
    else `create`. A file whose session nobody can tell, because a crash kept it out of the log, is
    among them: a `restore` that finds nothing of its id begins anew. `options` are the provider's
    own settings (``--option name=value``). `turn` numbers the turn about to run, from 1, failed
    ones included; 0 when none is. `now` gives RFC 3339 timestamps, `sleep` waits some seconds
    and `new_id` gives fresh UUIDs: a provider has neither clock nor chance of its own. `host` is
    for providers that run a program.
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


# Text and image parts of a prompt, as in UserMessageBlock.content.
Content: TypeAlias = str | list[dict[str, Any]]


class Profile(NamedTuple):
    """An agent profile to write into a workspace: instructions, and files by relative path."""

    instructions: str
    skills: Mapping[str, bytes]
    agents: Mapping[str, bytes]


class Architecture(NamedTuple):
    """One adapter: its short name, the seed's architecture name, and its sides."""

    name: str
    architecture: str
    summary: str
    reader: TranscriptReader | None = None
    provider: Provider | None = None


def program_of(provider: Provider) -> ProgramProvider | None:
    """Return a provider as one whose sessions are a real client's; None for any other."""
    if not provider.runs_program:
        return None

    return provider if isinstance(provider, ProgramProvider) else None


# What an agent architecture must offer.
#
# See seed session-type-system, section 5; docs/adapters.md, "Adapters".
#
# There are two sides, and an adapter may have one or both:
#
# - `TranscriptReader` turns the architecture's own files into blocks. It is handed bytes by name
#   and knows nothing of agents directories.
# - `Provider` runs turns: `create` or `restore` gives a `ProviderSession`, whose `send` streams
#   events, `suspend` gives an opaque blob, and `stop` ends it.
#
# What is handed to them and returned stands in `agentsdir.adapters.protocol`.


class Translator(Protocol):
    """Turns a client's standard output into stream events, one line at a time.

    The blocks it completes equal those that the transcript gives (decision D21).
    """

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        """Take one line, with or without its LF. Never raises for what the bytes hold."""

    def end(self) -> Iterator[StreamEvent]:
        """Yield what is left when there will be no more lines: open blocks are completed."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the lines so far."""


class Follower(Protocol):
    """Reads a growing session: its main transcript and the children that appear beside it."""

    def poll(self) -> Iterator[StreamEvent]:
        """Yield what was written since the last look: completed blocks, and updates of them.

        A file that is not there yet, or a line that has no end yet, is waited for; one that
        shrank or was rewritten is read again, and only what changed is told. Never raises for what
        the bytes hold.
        """

    def end(self) -> Iterator[StreamEvent]:
        """Yield what only the end settles: an unterminated last line, calls never answered."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What was wrong with the files so far."""


class TranscriptReader(Protocol):
    """The parsing side."""

    def detect(self, head: bytes, name: str) -> bool:
        """Tell from the first 64 KiB (and, at most as a hint, the name) whether the bytes are ours.

        `head` is cut at a byte, not at a line: its last line may be incomplete. It is asked again
        with more of a file whose first lines are longer, if nobody takes it by 64 KiB.
        """

    def paths(self, home: Path, cwd: Path, env: Mapping[str, str]) -> Paths:
        """Say where the real client keeps its transcripts."""

    def discover(self, sources: Sequence[Source]) -> list[SessionFiles]:
        """Group transcripts that `detect` accepted, and files beside them, into sessions.

        `sources` are all files handed in, or all files of a folder, in order. A child stands with
        its main transcript when both are there, so that nothing is printed twice.
        """

    def parse_transcripts(self, session: SessionFiles, sink: ParseSink) -> None:
        """Read a whole session into `sink`. Never raises for what the bytes hold."""


@runtime_checkable
class StoreReader(TranscriptReader, Protocol):
    """A reader that knows the client's own store, and reads while the client writes there."""

    def is_storage(self, folder: Path) -> bool:
        """Tell whether a folder is a client's storage: it holds more than transcripts, and secrets.

        Only what `transcripts` names is to be opened in one.
        """

    def transcripts(self, storage: Path, refuse: Refuse) -> Iterator[Path]:
        """Yield every transcript below the client's storage folder, main or child, in order."""

    def sessions(self, storage: Path, refuse: Refuse) -> Iterator[NativeSession]:
        """Yield the sessions below the storage folder, from head and tail reads only.

        The one written last comes first. What a list need not show is left out.
        """

    def locate(self, storage: Path, native_id: str) -> list[Path]:
        """Return the main transcripts of that id below the storage folder, best first.

        `native_id` may be the beginning of ids, from `MIN_NATIVE_PREFIX` characters on.
        """

    def native_id(self, main: Path) -> str:
        """Return the id of the session whose main transcript is at `main`; empty for none."""

    def files(self, main: Path) -> SessionFiles:
        """Return the session whose main transcript is at `main`, with the children beside it."""

    def adoptable(self, main: Path) -> Adoptable:
        """Return the same session with every file that is its own.

        Raises `Invalid` (kind ``bad-native-id``) when the client would not take its id.
        """

    def follow(self, main: Path, *, hidden: bool = False, alone: bool = False) -> Follower:
        """Return a follower of the session whose main transcript is, or will be, at `main`.

        Blocks marked `hidden` are told if asked for. With `alone` that one file is followed, and no
        subagents' beside it.
        """


@runtime_checkable
class OutputReader(TranscriptReader, Protocol):
    """A reader that also reads what the client prints."""

    def translate_stream(self) -> Translator:
        """Return a translator for the standard output of one run."""


@runtime_checkable
class LiveReader(StoreReader, OutputReader, Protocol):
    """A reader of a client's store and of its output."""


class ProviderSession(Protocol):
    """A running session of one provider."""

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn and stream it, the prompt's own `user_message` block included.

        Raises `ProviderError` when the turn fails; what was yielded before still happened. An
        exception that comes from outside (a signal) leaves the turn to `interrupt` or `stop`.
        """

    def interrupt(self) -> Iterator[StreamEvent]:
        """Ask the running turn to end; yield what still comes of it. Nothing runs afterwards."""

    def suspend(self) -> bytes:
        """Return an opaque blob that speeds up `restore`. Never needed for correctness (D23)."""

    def stop(self) -> None:
        """End the session and everything it started. Called again, it does nothing."""

    def transcripts(self) -> Sequence[NativeFile]:
        """Return the native transcript files as they stand now."""


class Provider(Protocol):
    """The running side.

    `default_model` may be empty: the client's own. `runs_program` tells whether sessions run a
    program of the user's, whose transcripts stand in the client's own store. A provider may have
    `path_options`, the names of options that are paths: of an imported agent these are relative to
    its working directory, and stay in it.
    """

    option_names: tuple[str, ...]
    default_model: str
    runs_program: bool

    def create(self, spec: SessionSpec) -> ProviderSession:
        """Open a new session. Raises `ProviderError`."""

    def restore(self, spec: SessionSpec, state: bytes) -> ProviderSession:
        """Reopen one with its full context, also when `state` is empty or garbage."""

    def fork(
        self,
        transcripts: Mapping[str, Source],
        old_id: str,
        new_id: str,
        report: Callable[[Finding], None],
    ) -> Iterator[NativeFile]:
        """Yield a session's saved transcripts as those of a new one that goes on from there.

        `report` is told of each damaged line, which is left out of the copy.
        """


@runtime_checkable
class ProgramProvider(Provider, Protocol):
    """A provider whose sessions are those of a real client, in the client's own store."""

    def native_files(self, spec: SessionSpec) -> list[NativeFile]:
        """Return the session's files as they stand in the client's store now; none is fine."""

    def place(self, spec: SessionSpec) -> list[Path]:
        """Put the saved transcripts where the client finds them; return what was written.

        This is the seed's `setupSessionTranscripts`. Raises `ProviderError` of kind
        ``session-open`` when the client has the session open, and `Invalid` of kind
        ``transcript-differs`` where other bytes stand in a file's place; files that go on from the
        saved ones are left as they are.
        """

    def goes_on(self, saved: Source, present: Source, *, ours: bool) -> bool:
        """Tell whether a file that was written anew may take the place of its saved copy.

        `ours` is whether it was written in a turn of ours.
        """

    def workspace_files(self, profile: Profile) -> Mapping[str, bytes]:
        """Return what a profile puts into a workspace, by relative path.

        This is the seed's `setupAgentProfile`.
        """
