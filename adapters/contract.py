"""What an agent architecture must offer (seed session-type-system, section 5; SPEC.md, "Adapters").

There are two sides, and an adapter may have one or both:

- `TranscriptReader` turns the architecture's own files into blocks. It is handed bytes by name
  and knows nothing of agents directories.
- `Provider` runs turns: `create` or `restore` gives a `ProviderSession`, whose `send` streams
  events, `suspend` gives an opaque blob, and `stop` ends it.

Third parties publish an `Architecture` under the entry-point group ``agentsdir.adapters``.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from agentsdir.formats.reading.sink import ParseSink
    from agentsdir.formats.reading.source import Source
    from agentsdir.formats.reading.stream import StreamEvent

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Transcript(NamedTuple):
    """One transcript file of a session.

    `role` is "main" or "subagent". `sidecar` is a small file beside it that describes it (Claude's
    ``agent-*.meta.json``), if there is one.
    """

    source: Source
    role: str
    sidecar: Source | None = None


class SessionFiles(NamedTuple):
    """The files that together hold one session: the main transcript first, then its children.

    There may be no main one: a subagent's file can be read alone.
    """

    transcripts: tuple[Transcript, ...]


class Paths(NamedTuple):
    """Where an architecture keeps things for one user and working directory."""

    storage: Path
    transcripts: Path


class TranscriptReader(Protocol):
    """The parsing side."""

    def detect(self, head: bytes, name: str) -> bool:
        """Tell from the first 64 KiB (and, at most as a hint, the name) whether the bytes are ours.

        `head` is cut at a byte, not at a line: its last line may be incomplete.
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


class NativeFile(NamedTuple):
    """A transcript as the provider holds it now: native relative path, role, bytes."""

    path: str
    role: str
    data: bytes


class SessionSpec(NamedTuple):
    """What a provider needs to know to open a session.

    `native_id` is the id to use with the architecture's own program. `transcripts` are the saved
    files, by native relative path, for `restore`; empty for `create`. `options` are the provider's
    own settings (``--option name=value``). `turn` numbers the turn about to run, from 1, failed
    ones included; 0 when none is. `now` gives RFC 3339 timestamps and `sleep` waits some seconds:
    a provider has no clock of its own.
    """

    native_id: str
    model: str
    system_prompt: str
    cwd: str
    now: Callable[[], str]
    sleep: Callable[[float], None]
    turn: int = 0
    options: Mapping[str, str] = _NOTHING
    transcripts: Mapping[str, bytes] = _NOTHING


# Text and image parts of a prompt, as in UserMessageBlock.content.
Content = str | list[dict[str, Any]]


class ProviderSession(Protocol):
    """A running session of one provider."""

    def send(self, content: Content) -> Iterator[StreamEvent]:
        """Run one turn and stream it, the prompt's own `user_message` block included.

        Raises `ProviderError` when the turn fails; what was yielded before still happened.
        """

    def suspend(self) -> bytes:
        """Return an opaque blob that speeds up `restore`. Never needed for correctness (D23)."""

    def stop(self) -> None:
        """End the session and everything it started."""

    def transcripts(self) -> Sequence[NativeFile]:
        """Return the native transcript files as they stand now."""


class Provider(Protocol):
    """The running side."""

    option_names: tuple[str, ...]
    default_model: str

    def create(self, spec: SessionSpec) -> ProviderSession:
        """Open a new session. Raises `ProviderError`."""

    def restore(self, spec: SessionSpec, state: bytes) -> ProviderSession:
        """Reopen one with its full context, also when `state` is empty or garbage."""


class Architecture(NamedTuple):
    """One adapter: its short name, the seed's architecture name, and its sides."""

    name: str
    architecture: str
    summary: str
    reader: TranscriptReader | None = None
    provider: Provider | None = None
