"""Parsing transcripts into blocks; finding sessions in the clients' stores.

See docs/reading.md, "Reading transcripts" and "Native sessions".
"""

from __future__ import annotations

import heapq
import os
import re
import stat
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import MIN_NATIVE_PREFIX, ResumableReader, StoreReader
from agentsdir.adapters.store_files import ignore
from agentsdir.engine import workers
from agentsdir.engine.lookup import first_few
from agentsdir.engine.parse_report import ParseReport, SessionReport
from agentsdir.formats.errors import AgentsdirError, NoSuchAgent, NotATranscript, UsageError
from agentsdir.formats.findings import Finding
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source, heads

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence

    from agentsdir.adapters.protocol import (
        Architecture,
        NativeSession,
        Process,
        ReaderState,
        Refuse,
        SessionFiles,
        TranscriptReader,
    )
    from agentsdir.engine.lookup import ListedAgent
    from agentsdir.formats.sink import View

GZIP = b"\x1f\x8b"
SUFFIXES = (".jsonl", ".json")
_LINES = 64  # lines in which an adapter may recognise a file

_REFERENCE = re.compile(f"[0-9A-Za-z_-]{{{MIN_NATIVE_PREFIX},128}}")


class FoundSession(NamedTuple):
    """A session and the architecture that recognised it."""

    architecture: Architecture
    files: SessionFiles


def find_sessions(
    sources: Iterable[Source],
    adapter: str,
    reject: Callable[[NotATranscript], None],
    *,
    forced: bool = False,
) -> list[FoundSession]:
    """Sort `sources` by architecture and group them into sessions, in the order given.

    Args:
        sources: the files, or all candidates of a folder.
        adapter: the name of the only adapter to use, or "auto" for all built-in ones.
        forced: use the adapter for every file, also one that it does not recognise.
        reject: called with an error for each file that no adapter recognises; it may raise.
    """
    names = registry.BUILT_IN if adapter == "auto" else (adapter,)
    claimed: dict[str, list[Source]] = {}
    rejected: list[NotATranscript] = []
    for source in sources:
        try:
            owner = owner_of(source, names, forced=forced)
        except NotATranscript as error:
            rejected.append(error)
        else:
            claimed.setdefault(owner, []).append(source)
    found = []
    for name in names:
        if name in claimed:
            architecture = registry.get(name)
            with registry.adapter_errors(architecture):
                files = _reader(architecture).discover(claimed[name])
            found += [FoundSession(architecture, session) for session in files]
    sidecars = {
        transcript.sidecar.name
        for one in found
        for transcript in one.files.transcripts
        if transcript.sidecar is not None
    }
    for one_rejected in rejected:
        if one_rejected.file not in sidecars:
            reject(one_rejected)
    return found


def owner_of(source: Source, names: Iterable[str], *, forced: bool = False) -> str:
    """Return the name of the architecture that recognises a file; later ones are not imported.

    Raises `NotATranscript`.
    """
    try:
        head = source.head()
    except AgentsdirError as error:
        raise NotATranscript(error.message, file=source.name, kind="unreadable") from error
    if not head:
        message = f"{source.name} is empty: no session is stored in it"
        raise NotATranscript(message, file=source.name, kind="empty-file")
    for begun in _heads(source):
        for name in names:
            if forced or _takes(registry.get(name), begun, source.name):
                return name
    if head.startswith(GZIP):
        message = f"{source.name} is compressed"
        hint = f"`zcat {source.name} | agentsdir parse -` reads it"
        raise NotATranscript(message, file=source.name, hint=hint)
    raise NotATranscript(
        f"{source.name} is no transcript that a built-in adapter knows",
        file=source.name,
        hint="`agentsdir adapters` lists all; --adapter NAME names one",
    )


def recognises(adapter: str, source: Source) -> bool:
    """Return whether an adapter recognises a file."""
    architecture = registry.get(adapter)
    return any(_takes(architecture, head, source.name) for head in _heads(source))


def _heads(source: Source) -> Iterator[bytes]:
    """Yield the first 64 KiB, then more where these end within one of the first rows."""
    for head in heads(source.head):
        yield head
        if head.count(b"\n") >= _LINES:
            return


def _takes(architecture: Architecture, head: bytes, name: str) -> bool:
    with registry.adapter_errors(architecture):
        return _reader(architecture).detect(head, name)


def _reader(architecture: Architecture) -> TranscriptReader:
    if architecture.reader is None:
        raise UsageError(f"the adapter {architecture.name!r} reads no transcripts")
    return architecture.reader


def walk(folder: Path, name: str, reject: Callable[[NotATranscript], None]) -> Iterator[Source]:
    """Yield every candidate file below `folder`, sorted, following links but no loops.

    Hidden files are left out. In a client's own storage, which has secrets, only transcripts are
    candidates.

    Args:
        name: of the folder as the user wrote it; the names of the sources begin with it.
        reject: called with an error for each folder that cannot be read.
    """

    def refuse(error: OSError) -> None:
        message = f"cannot read {error.filename}: {error.strerror}"
        reject(NotATranscript(message, file=str(error.filename), kind="unreadable"))

    def source(path: Path) -> Source:
        return Source(str(Path(name) / path.relative_to(folder)), path=path)

    clients = [one.reader for one in registry.built_in() if isinstance(one.reader, StoreReader)]
    status = folder.stat()
    seen: set[tuple[int, int]] = {(status.st_dev, status.st_ino)}
    # A list and not recursion: hostile folders may be nested deeper than Python's stack.
    pending = [folder]
    while pending:
        where = pending.pop()
        client = next((reader for reader in clients if reader.is_storage(where)), None)
        if client is not None:
            yield from map(source, client.transcripts(where, refuse))
            continue
        try:
            with os.scandir(where) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            refuse(error)
            continue
        inner, files = [], []
        for entry in entries:
            path = where / entry.name
            named = entry.name.endswith(SUFFIXES) and entry.name[0] != "."
            try:
                status = path.stat()
            except OSError as error:  # a link that leads nowhere, or a folder without its x bit
                if named:
                    refuse(error)
                continue
            if stat.S_ISDIR(status.st_mode):
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    inner.append(path)
            elif named and stat.S_ISREG(status.st_mode):
                files.append(path)
            elif named:
                message = f"{path} is no regular file"
                reject(NotATranscript(message, file=str(source(path).name)))
        yield from map(source, files)
        pending += reversed(inner)


def parse_session(found: FoundSession, *, hidden: bool, apart: bool = False) -> ParseSink:
    """Read one session completely. Raises `AgentsdirError` if a file cannot be read.

    `apart` is whether the tokens of each model message are kept, for a sum over several sessions.
    """
    sink = ParseSink(hidden=hidden, apart=apart)
    with _reading(found) as reader:
        reader.parse_transcripts(found.files, sink)
    return sink


def resume_session(
    found: FoundSession, sink: ParseSink, state: ReaderState | None, *, keeps: bool
) -> ReaderState | None:
    """Read one session into `sink`, from `state` on, as far as its reader can do that.

    Returns where the reading ended (`ResumableReader.resume`), if `keeps` says that it is wanted.
    Raises as `parse_session` does, and anything for a `state` that does not fit.
    """
    with _reading(found) as reader:
        if isinstance(reader, ResumableReader):
            return reader.resume(found.files, sink, state, keeps=keeps)
        reader.parse_transcripts(found.files, sink)
    return None


@contextmanager
def _reading(found: FoundSession) -> Iterator[TranscriptReader]:
    """Give the reader of a session; raise `AgentsdirError` if a file cannot be read."""
    try:
        with registry.adapter_errors(found.architecture):
            yield _reader(found.architecture)
    except OSError as error:
        name = error.filename or session_name(found)
        raise AgentsdirError(f"cannot read {name}: {error.strerror}") from error


def session_name(found: FoundSession) -> str:
    """Name a session in a report: its first file."""
    return found.files.transcripts[0].source.name


def parse_all(
    found: Sequence[FoundSession],
    report: ParseReport,
    *,
    hidden: bool,
    jobs: int = 1,
    note_done: Callable[[FoundSession], None] = lambda _: None,
) -> Generator[bytes, None, None]:
    """Yield every block of every session as a line of JSON, filling `report` on the way.

    Each piece is one or more whole lines. A session that cannot be read is a finding
    (`unreadable`) and does not stop the others; a single one raises `AgentsdirError`.

    Args:
        found: the sessions.
        report: takes what was read of each.
        hidden: also yield blocks marked `hidden`.
        jobs: how many processes read; the result is the same for any number (`workers.deal`).
        note_done: called with each session after its blocks.
    """
    alone = len(found) == 1
    read = partial(_read, view=report.view, hidden=hidden, apart=not alone)
    with closing(workers.deal(found, read, size=size_of, jobs=jobs)) as results:
        for result in results:
            if result.error is None:
                yield from result.pieces
                report.add(SessionReport.decode(result.note))
            elif alone:
                raise result.error
            else:
                name = session_name(result.item)
                report.add_finding(Finding("unreadable", name, result.error.message))
            note_done(result.item)
            del result  # its session, before the next one fills the memory


def _read(
    found: FoundSession, *, view: View, hidden: bool, apart: bool
) -> tuple[bytes, Iterator[bytes]]:
    """Return an encoded `SessionReport` and the blocks of a session."""
    sink = parse_session(found, hidden=hidden, apart=apart)
    report = SessionReport.of(found.architecture.name, session_name(found), sink, view)
    return report.encode(), sink.pieces(view)


def size_of(found: FoundSession) -> int:
    """Return how many bytes the files of a session have; of one that cannot be read, none."""
    total = 0
    for transcript in found.files.transcripts:
        with suppress(AgentsdirError):
            total += transcript.source.size
    return total


class ClientStore(NamedTuple):
    """The storage folder of one client, and its reader."""

    architecture: Architecture
    reader: StoreReader
    folder: Path


class LocatedSession(NamedTuple):
    """A session's main transcript in a client's store."""

    store: ClientStore
    main: Path

    @property
    def found(self) -> FoundSession:
        """The session as it stands, with its children."""
        return FoundSession(self.store.architecture, self.store.reader.files(self.main))


def stores_of(home: Path, cwd: Path, variables: Mapping[str, str]) -> list[ClientStore]:
    """Return the stores of this user's clients; environment variables may change their paths."""
    return [
        ClientStore(architecture, reader, cwd / reader.paths(home, cwd, variables).storage)
        for architecture, reader in _readers()
    ]


def stores_at(folder: Path) -> list[ClientStore]:
    """Return a folder as a store of each client that keeps one."""
    return [ClientStore(architecture, reader, folder) for architecture, reader in _readers()]


def _readers() -> Iterator[tuple[Architecture, StoreReader]]:
    for architecture in registry.built_in():
        if isinstance(architecture.reader, StoreReader):
            yield architecture, architecture.reader


class ListedSession(NamedTuple):
    """A session in a client's store, and the running client that is seen to have it open."""

    architecture: Architecture
    session: NativeSession
    client: Process | None


def list_native(stores: Iterable[ClientStore], refuse: Refuse) -> Iterator[ListedSession]:
    """Yield the sessions of all stores, the one written last first. A missing store has none."""

    def of(store: ClientStore) -> Iterator[ListedSession]:
        clients: dict[str, Process] | None = None
        for session in store.reader.sessions(store.folder, refuse):
            if clients is None:
                clients = dict(store.reader.open_sessions(store.folder))
            yield ListedSession(store.architecture, session, clients.get(session.id))

    there = [of(store) for store in stores if _is_there(store, refuse)]
    return heapq.merge(*there, key=lambda listed: listed.session.modified, reverse=True)


def _is_there(store: ClientStore, refuse: Refuse) -> bool:
    """Return whether a store's folder exists; `refuse` is called with errors of the system."""
    try:
        return stat.S_ISDIR(store.folder.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        refuse(error)
        return False


def main_in(stores: Iterable[ClientStore], reader: StoreReader, native_id: str) -> Path | None:
    """Return the main transcript that a client's store has of a session; None for none."""
    for store in stores:
        if store.reader is reader and store.folder.is_dir():
            for main in reader.locate(store.folder, native_id):
                if reader.native_id(main) == native_id:  # and not one that merely begins so
                    return main
    return None


def native_row(listed: ListedSession, owner: ListedAgent | None) -> dict[str, Any]:
    """Return the row that a list shows of a session.

    Args:
        owner: the agent that goes on with it; None for none. The session is of its folder, which
            may be another than that of the session's first rows.
    """
    session, client = listed.session, listed.client
    said = owner.document if owner else None
    return {
        "type": "native-session",
        "adapter": listed.architecture.name,
        "id": session.id,
        "file": str(session.file),
        "cwd": said["cwd"] if said else session.cwd,
        "title": session.title,
        "branch": session.branch,
        "createdAt": session.created,
        "modifiedAt": session.modified,
        "size": session.size,
        "agentId": owner.paths.id if owner else None,
        "process": client._asdict() if client else None,
    }


def is_native_reference(reference: str) -> bool:
    """Return whether a word has the form of a native session id, or of a prefix of one."""
    return _REFERENCE.fullmatch(reference) is not None


def find_native(stores: Iterable[ClientStore], reference: str) -> LocatedSession:
    """Return the session with this id, or the only one whose id begins with it.

    Where several files have the id, it is the one that its reader names first. Raises
    `NoSuchAgent` (kind ``no-such-session``), or `UsageError` (kind ``ambiguous``) with the
    candidates.
    """
    asked = list(stores)
    located = [
        LocatedSession(store, main)
        for store in asked
        if _is_there(store, ignore)
        for main in store.reader.locate(store.folder, reference)
    ]
    if not located:
        places = ", ".join(str(store.folder) for store in asked)
        raise NoSuchAgent(
            f"no file {reference}, and no session of that id in {places}",
            hint="`agentsdir list --native` shows them",
            kind="no-such-session",
        )
    candidates = sorted({one.store.reader.native_id(one.main) for one in located})
    if len(candidates) > 1:
        raise UsageError(
            f"{reference!r} is ambiguous: {first_few(candidates)}",
            hint="give the whole id",
            kind="ambiguous",
        )
    return located[0]
