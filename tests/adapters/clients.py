"""What the conformance kit asks of a client: which files it writes, what they say, where they are.

The tests in `conformance` hold every client to the same promises. A client takes part by a subclass
of `Client` beside its own tests: builders of its files, and tables of its peculiarities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from watching import Watching, Writer

from agentsdir.adapters.protocol import Host, LiveReader, ProgramProvider, SessionSpec
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from any_json import AnyRows
    from bench import Bench
    from watching import Blocks

    from agentsdir.adapters.protocol import Architecture, NativeSession

NOW = "2026-01-02T03:04:05.678900Z"
ID = "6f1b2f4e-93a7-4f0e-a0b5-0a4d6f3c1e01"
OTHER = "0000000a-0000-4000-8000-00000000000b"


class Client(ABC):
    """A machine with a client's store and a working directory, on which the client has not run yet.

    Names of files are relative to the folder of a project, and `talk` is the transcript of a
    session `ID` in which the prompt "hi" is answered by "yes".

    Args:
        folder: where the home and the working directory are made.
        native_id: the session that `spec` asks for.
    """

    architecture: ClassVar[Architecture]
    bench: ClassVar[type[Bench]]
    """A stand-in for its program."""
    variable: ClassVar[str]
    """The environment variable that moves the store."""
    elsewhere: ClassVar[str]
    """The folder of another project, relative to the store."""
    talk: ClassVar[bytes]
    more: ClassVar[bytes]
    """Rows that go on from `talk`: the prompt "more" and the answer "done"."""
    model: ClassVar[str]
    """The model of the answer in `more`."""
    adopted: ClassVar[str]
    """The native path of `talk` where it stands in no store: it says that it was in /old/place."""
    torn: ClassVar[bytes]
    """The beginning of a row."""
    branch: ClassVar[str] = ""
    """The branch that a list shows for `talk`."""
    child: ClassVar[str]
    child_id: ClassVar[str]
    """A subagent's transcript, and its conversation."""
    child_alone: ClassVar[list[str]] = []
    """The findings where that transcript is read by itself."""
    output: ClassVar[str]
    """A file of the session's that is no transcript."""
    whole: ClassVar[dict[str, bytes]]
    """All files of a session, the transcript first."""
    roles: ClassVar[dict[str, str]]
    """The roles of the same files."""
    family: ClassVar[dict[str, bytes]]
    """A session's transcript and those of its subagents, in order, in every layout."""
    strangers: ClassVar[dict[str, bytes]]
    """Transcripts beside them, which are of none of its subagents."""
    foreign: ClassVar[dict[str, bytes]]
    """Files of other sessions, and of none."""
    beside: ClassVar[dict[str, bytes]]
    """Files beside them that are no transcripts."""
    others: ClassVar[dict[str, tuple[dict[str, bytes], str, bytes]]]
    """Saved files, and a file in the store that contradicts one of them."""
    grown: ClassVar[dict[str, tuple[str, bytes, bytes]]]
    """A name, its saved bytes, and bytes in the store that go on from them."""
    alien: ClassVar[dict[str, tuple[str, bytes]]]
    """Native paths below the store that are no place for a file of the session's, and bytes."""
    no_ids: ClassVar[tuple[str, ...]]
    """Texts that the client takes for no id."""
    titles: ClassVar[dict[str, tuple[bytes, str]]]
    """Transcripts, and the titles that a list shows for them."""
    unlisted: ClassVar[dict[str, tuple[bytes, bool]]]
    """Transcripts that a list leaves out, and whether they are found by their id."""
    no_transcripts: ClassVar[tuple[str, ...]]
    """Names beside a transcript under which no session stands."""
    stores: ClassVar[dict[str, tuple[str, list[str], bool]]]
    """A folder, files in it, and whether they make it the client's storage folder."""
    fixtures: ClassVar[list[Path]]
    """Recorded sessions: a file each, or a folder with its subagents."""
    logs: ClassVar[list[Path]]
    """Recorded files of rows."""
    cut_logs: ClassVar[list[Path]]
    """Those that are cut anywhere."""
    any_rows: ClassVar[AnyRows]
    odd_logs: ClassVar[dict[str, list[dict[str, Any]]]]
    """Rows that a search once found to go wrong."""
    passing: ClassVar[tuple[str, str]]
    """Ids, as patterns, of blocks that half a line more may take away, and the rest of a file."""
    single_ids: ClassVar[bool]
    """Whether ids are unique over all threads of a session, and not in each alone."""
    tries: ClassVar[int]
    """How many shapes of rows are tried; of changes to real ones, half as many."""
    examples: ClassVar[int]
    """How many ways of writing a recorded session are tried."""
    in_order: ClassVar[bool]
    """Whether what is followed comes in the order in which it is parsed."""

    def __init__(self, folder: Path, native_id: str = ID) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.cwd = folder / "My work ä"
        self.native_id = native_id
        for made in (self.home, self.cwd):
            made.mkdir(parents=True)

    @classmethod
    def read_by(cls) -> LiveReader:
        """Return the reader under test."""
        assert isinstance(cls.architecture.reader, LiveReader)
        return cls.architecture.reader

    @property
    def reader(self) -> LiveReader:
        """The same."""
        return self.read_by()

    @property
    def provider(self) -> ProgramProvider:
        """The provider under test."""
        assert isinstance(self.architecture.provider, ProgramProvider)
        return self.architecture.provider

    @property
    @abstractmethod
    def storage(self) -> Path:
        """The client's root."""

    @property
    @abstractmethod
    def project(self) -> Path:
        """The folder of the working directory's project."""

    @property
    @abstractmethod
    def transcript(self) -> str:
        """The name of the session's transcript."""

    @property
    @abstractmethod
    def listed_cwd(self) -> str:
        """Where a list says that `talk` was: the transcript has the word, or its folder."""

    @property
    def main(self) -> Path:
        """Where the session's transcript belongs."""
        return self.project / self.transcript

    @property
    def way(self) -> list[Path]:
        """The folders on the way to the transcript, from below the store on."""
        return [path for path in reversed(self.main.parents) if self.storage in path.parents]

    @property
    def marks(self) -> set[Path]:
        """Files that the placing makes beside those of the session."""
        return set()

    @abstractmethod
    def storage_at(self, folder: Path) -> Path:
        """Return the client's root where its variable names a folder."""

    @abstractmethod
    def name_of(self, native_id: str) -> str:
        """Return the name of another session's transcript."""

    @abstractmethod
    def asked(self, text: str) -> list[bytes]:
        """Return the transcript of a session with this first prompt, in each of its formats."""

    @abstractmethod
    def titled(self, title: str) -> bytes:
        """Return a row that gives a session its title."""

    @abstractmethod
    def long(self, count: int, text: str) -> bytes:
        """Return a transcript of so many prompts."""

    def session(self, native_id: str) -> bytes:
        """Return `talk` as another session."""
        return self.talk.replace(ID.encode(), native_id.encode())

    def save(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return files by the native paths under which another project's are saved."""
        return {f"{self.elsewhere}/{name}": data for name, data in files.items()}

    def spec(self, saved: Mapping[str, bytes], **host: Any) -> SessionSpec:
        """Return what a session of the machine's is asked for by."""
        files = {name: Source(name, data=data) for name, data in saved.items()}
        return SessionSpec(
            self.native_id, "", "", str(self.cwd), lambda: NOW, lambda _seconds: None,
            lambda: OTHER, transcripts=files,
            host=Host(self.home, **{"command": ("no-such-program",), **host}),
        )  # fmt: skip

    def place(self, saved: Mapping[str, bytes], **host: Any) -> list[Path]:
        """Place saved files; return what was written."""
        return self.provider.materialize(self.spec(saved, **host))

    def stand(self, data: bytes, name: str = "", project: Path | None = None) -> Path:
        """Put a file below a project's folder, as the client would."""
        path = (project or self.project) / (name or self.transcript)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def listed(self, folder: Path | None = None) -> list[NativeSession]:
        """Return what a list shows; nothing may be refused."""

        def refuse(error: OSError) -> None:
            raise error

        return list(self.reader.sessions(folder or self.storage, refuse))

    @classmethod
    def watch(cls, main: Path) -> Watching:
        """Return a session that is followed by hand."""
        return Watching(main, cls.read_by().follow(main, hidden=True))

    def writer(self, folder: Path, contents: dict[Path, bytes], data: Any) -> Writer:
        """Return who writes the files of a session piece by piece."""
        return Writer(folder, contents, data)

    @classmethod
    @abstractmethod
    def laid_out(cls, fixture: Path) -> dict[Path, bytes]:
        """Return the files of a recorded session by relative path, the main one first."""

    @classmethod
    def parsed(cls, main: Path) -> Blocks:
        """Return what parsing the session gives, by conversation."""
        sink = ParseSink(hidden=True)
        cls.read_by().parse_transcripts(cls.read_by().files(main), sink)
        found: Blocks = {}
        for block in sink.blocks("all"):
            found.setdefault(block["conversationId"], []).append(block)
        return found
