"""Following a session while its client writes it (docs/reading.md, "Following")."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import OutputReader, StoreReader
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.parse import SUFFIXES, find_native, is_native_reference, main_in, owner_of
from agentsdir.formats.block_lines import BlockStore
from agentsdir.formats.errors import (
    AgentsdirError,
    Invalid,
    NoSuchAgent,
    NotATranscript,
    ProviderError,
    UsageError,
)
from agentsdir.formats.rows import LINE_CAP
from agentsdir.formats.source import HEAD, Source
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.transcripts import check_links, of_session, store_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from agentsdir.adapters.protocol import Architecture, Follower, Translator
    from agentsdir.engine.parse import ClientStore
    from agentsdir.formats.blocks import StreamEvent
    from agentsdir.formats.findings import Finding
    from agentsdir.formats.store.layout import AgentPaths, Layout

    Session = tuple[Architecture, StoreReader, Path]

# Readers recognise output by at most this many lines that are not blank.
_LINES = 64
# Bytes of the first line that an error shows.
_SHOWN = 80
# Seconds between two polls; the clients write every 100 ms.
INTERVAL = 0.1


class FollowTarget(NamedTuple):
    """A session to follow.

    Attributes:
        place: the path of the transcript, which may not exist yet.
        look: returns the session; None as long as it does not exist.
        alone: follow one file without the files of its subagents, as `parse FILE` reads it.
    """

    place: Path
    look: Callable[[], Session | None]
    alone: bool = False

    def follower(self, *, hidden: bool) -> Follower:
        """Return a follower; it waits until the session exists."""
        return _LazyFollower(self.look, hidden=hidden, alone=self.alone)


class _LazyFollower:
    """Creates the adapter's follower once the session exists: its content names the adapter."""

    def __init__(
        self,
        look: Callable[[], Session | None],
        *,
        hidden: bool,
        alone: bool,
    ) -> None:
        self._look = look
        self._hidden = hidden
        self._alone = alone
        self._begun: tuple[Architecture, Follower] | None = None

    def poll(self) -> Iterator[StreamEvent]:
        """Yield the events since the last poll. Raises what `registry.adapter_errors` raises."""
        if self._begun is None and (found := self._look()):
            architecture, reader, main = found
            with registry.adapter_errors(architecture):
                follower = reader.follow(main, hidden=self._hidden, alone=self._alone)
            self._begun = architecture, follower
        if self._begun is not None:
            architecture, follower = self._begun
            with registry.adapter_errors(architecture):
                yield from follower.poll()

    def end(self) -> Iterator[StreamEvent]:
        """Yield the last events. Raises what `registry.adapter_errors` raises."""
        if self._begun is not None:
            architecture, follower = self._begun
            with registry.adapter_errors(architecture):
                yield from follower.end()

    @property
    def blocks(self) -> BlockStore:
        """The completed blocks, each as the events so far left it."""
        return BlockStore() if self._begun is None else self._begun[1].blocks

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings so far."""
        return self._begun[1].findings if self._begun is not None else ()


def find_target(
    reference: str,
    *,
    layout: Layout,
    stores: Callable[[], list[ClientStore]],
    cwd: Path,
    home: Path,
    variables: Mapping[str, str],
    check_trust: Callable[[], None],
) -> FollowTarget:
    """Return the session that a word on the command line names.

    In this order: an existing file; a path that does not exist yet (with a slash, or the suffix of
    a transcript); a native session; an agent, whose session is followed in its client's store, or
    in the agents directory if it is not there. `stores` is called where a store is looked at, since
    that loads all adapters. Where `check_trust` raises, a log chooses no session in a store. Raises
    `UsageError`, `NotATranscript` or `NoSuchAgent`, and what `check_trust` does where nothing is
    stored.
    """
    path = cwd / reference
    if path.is_file() and path.stat().st_size:
        name = owner_of(Source(reference, path=path), registry.BUILT_IN)
        return _existing((*_store_reader(name), path), alone=True)
    if path.exists() or "/" in reference or path.suffix in SUFFIXES:
        if path.exists() and not path.is_file():
            raise UsageError(f"{reference} is no file", hint="`agentsdir list --native` shows ids")
        return FollowTarget(path, lambda: _detected(path, stores()[0]), alone=True)
    if is_native_reference(reference):
        try:
            located = find_native(stores(), reference)
        except NoSuchAgent as error:
            try:
                paths = find_agent(layout, reference)
                return _of_agent(paths, stores(), home, variables, check_trust)
            except NoSuchAgent:
                raise error from None
        store = located.store
        return _existing((store.architecture, store.reader, located.main))
    return _of_agent(find_agent(layout, reference), stores(), home, variables, check_trust)


def session_of_agent(
    reference: str,
    *,
    layout: Layout,
    stores: list[ClientStore],
    home: Path,
    variables: Mapping[str, str],
    check_trust: Callable[[], None],
) -> tuple[Architecture, StoreReader, Path]:
    """Return an agent's native session: in its client's store, else in the agents directory.

    Raises what `find_agent` raises, `UsageError` for an agent whose provider has no transcripts
    that are read, and `NoSuchAgent` (kind ``no-such-session``) before its first turn. Where
    `check_trust` raises, the store is not looked at, and that is raised if nothing is stored.
    """
    paths = find_agent(layout, reference)
    name = read_agent(paths).state.session.provider_name
    if not isinstance(registry.get(name).reader, StoreReader):
        raise UsageError(
            f"agent {paths.id} has no transcript of a client",
            hint=f"`agentsdir replay {paths.id}` shows its history",
            kind="no-transcript",
        )
    found = _of_agent(paths, stores, home, variables, check_trust).look()
    if found is None:
        raise NoSuchAgent(f"agent {paths.id} has no transcript yet", kind="no-such-session")
    return found


def _existing(session: Session, *, alone: bool = False) -> FollowTarget:
    return FollowTarget(session[2], lambda: session, alone)


def _detected(path: Path, otherwise: ClientStore) -> Session | None:
    """Return the session of a file once its first line is complete, or its head is full.

    Args:
        otherwise: the store whose reader reports the errors of a file that no adapter recognises.
    """
    source = Source(str(path), path=path)
    try:
        head = source.head()
    except AgentsdirError:
        return None
    if b"\n" not in head and len(head) < HEAD:
        return None
    try:
        name = owner_of(source, registry.BUILT_IN)
    except NotATranscript:
        return otherwise.architecture, otherwise.reader, path
    return *_store_reader(name), path


def _of_agent(
    paths: AgentPaths,
    stores: list[ClientStore],
    home: Path,
    variables: Mapping[str, str],
    check_trust: Callable[[], None],
) -> FollowTarget:
    state = read_agent(paths).state
    architecture, reader = _store_reader(state.session.provider_name)
    native_id = state.native["id"]
    refused: ProviderError | None = None
    try:
        check_trust()  # the log may name any session of this user
    except ProviderError as error:
        refused, stores = error, []

    def look(name: str) -> Session | None:
        main = main_in(stores, reader, name)
        return None if main is None else (architecture, reader, main)

    found = look(native_id)
    if found is not None:
        return _existing(found)
    for name, entry in of_session(state.transcripts, native_id).items():
        if entry["role"] == "main":
            check_links(paths)  # the reader opens the other files of the session by itself
            return _existing((architecture, reader, store_path(paths, name)))
    if refused is not None:
        raise refused
    if not is_native_reference(native_id):
        raise Invalid(f"agent {paths.id} has the native id {native_id!r}, which cannot be one")
    place = reader.paths(home, Path(state.native["cwd"]).resolve(), variables)
    # The client may choose another id, which the log then has.
    return FollowTarget(
        place.transcripts / native_id, lambda: look(read_agent(paths).state.native["id"])
    )


def _store_reader(name: str) -> tuple[Architecture, StoreReader]:
    architecture = registry.get(name)
    reader = architecture.reader
    if not isinstance(reader, StoreReader):
        raise UsageError(
            f"sessions of {name!r} cannot be followed",
            hint="`agentsdir parse` or `agentsdir replay` reads what is there",
            kind="cannot-follow",
        )
    return architecture, reader


def live_translator(*, keep: bool = True) -> DetectingTranslator:
    """Return a translator for the standard output of any known client.

    Args:
        keep: `blocks` of the translator has the completed blocks, each as the events left it.
    """
    readers = (one.reader for one in registry.built_in())
    outputs = [reader for reader in readers if isinstance(reader, OutputReader)]
    return DetectingTranslator(outputs, keep=keep)


class DetectingTranslator:
    """Translates the output of the client that is recognised from its first lines.

    Lines are held back until then.
    """

    def __init__(self, readers: Sequence[OutputReader], *, keep: bool) -> None:
        self.blocks = BlockStore()
        self._keep = keep
        self._readers = readers
        self._held: list[bytes] = []
        self._size = self._lines = 0
        self._translator: Translator | None = None

    @property
    def findings(self) -> Sequence[Finding]:
        """The findings so far."""
        return () if self._translator is None else self._translator.findings

    def line(self, line: bytes) -> Iterator[StreamEvent]:
        """Translate one line. Raises `NotATranscript` if the first lines are of no known client."""
        if self._translator is not None:
            yield from self._kept(self._translator.line(line))
            return
        self._held.append(line)
        self._size += len(line)
        known = None
        if line.strip():
            self._lines += 1
            head = b"".join(self._held)
            known = next((one for one in self._readers if one.detect(head, "-")), None)
        if known is not None:
            yield from self._begin(known)
        elif self._size >= HEAD or self._lines == _LINES:
            raise self._unknown()

    def end(self) -> Iterator[StreamEvent]:
        """Yield the last events. Raises `NotATranscript` for output that no reader recognises."""
        if self._translator is None:
            raise self._unknown()
        yield from self._kept(self._translator.end())

    def _kept(self, events: Iterator[StreamEvent]) -> Iterator[StreamEvent]:
        for event in events:
            if self._keep:
                self.blocks.apply(event)
            yield event

    def _begin(self, reader: OutputReader) -> Iterator[StreamEvent]:
        self._translator = reader.translate_stream()
        held, self._held = self._held, []
        for line in held:
            yield from self._kept(self._translator.line(line))

    def _unknown(self) -> NotATranscript:
        said = next((line.strip() for line in self._held if line.strip()), b"")
        if not said:
            return NotATranscript("- is empty: nothing was printed", file="-", kind="empty-file")
        begins = said[:_SHOWN].decode(errors="replace")
        return NotATranscript(
            f"- is no output of a client that is known, nor stream events; it begins: {begins}",
            file="-",
            hint="`claude -p --output-format stream-json --verbose` and `agentsdir send --events` "
            "print what can be followed",
        )


def follow(
    follower: Follower, sleep: Callable[[float], None], *, until_idle: float | None = None
) -> Iterator[StreamEvent | None]:
    """Yield events as they come, and None whenever there are none for now.

    Args:
        follower: is polled.
        sleep: waits some seconds.
        until_idle: end after so many seconds without an event; None never ends.
    """
    idle = 0.0
    while True:
        quiet = True
        for event in follower.poll():
            quiet = False
            yield event
        yield None
        if until_idle is not None and idle >= until_idle and quiet:
            break
        idle = idle + INTERVAL if quiet else 0.0
        sleep(INTERVAL)
    yield from follower.end()
    yield None


def translate(translator: Translator, stream: BinaryIO) -> Iterator[StreamEvent | None]:
    """Yield the events of a client's output as it comes, and None after each line."""
    while line := stream.readline(LINE_CAP):
        yield from translator.line(line)
        yield None
    yield from translator.end()
    yield None
