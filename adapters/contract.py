"""What is handed to an agent architecture, and what it returns (docs/adapters.md, "Adapters").

Its two sides, `TranscriptReader` and `Provider`, are described in `agentsdir.adapters.sides`.
Third parties publish an `Architecture` under the entry-point group ``agentsdir.adapters``.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentsdir.adapters.sides import ProgramProvider, Provider, TranscriptReader
    from agentsdir.formats.reading.findings import Finding
    from agentsdir.formats.reading.source import Source

    # Is told of each file or folder that the system does not let be read.
    Refuse = Callable[[OSError], None]

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
    from agentsdir.adapters.sides import ProgramProvider

    return provider if isinstance(provider, ProgramProvider) else None
