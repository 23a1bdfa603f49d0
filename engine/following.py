"""Sessions read while somebody else writes them (SPEC.md, "Following")."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from agentsdir.adapters import registry
from agentsdir.adapters.contract import LiveReader, StoreReader
from agentsdir.engine.agents import find_agent
from agentsdir.engine.native import Store, find_native, may_be_native
from agentsdir.engine.parsing import owner_of
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.directory.transcripts import store_path
from agentsdir.formats.errors import Invalid, NoSuchAgent, UsageError
from agentsdir.formats.reading.lines import LINE_CAP
from agentsdir.formats.reading.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

    from agentsdir.adapters.contract import Follower, Translator
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.reading.stream import StreamEvent

# The client's own writes are 100 ms apart: looking more often would not find them sooner.
INTERVAL = 0.1


class Followed(NamedTuple):
    """What is followed: a main transcript, which need not be there yet, and who reads it."""

    reader: StoreReader
    main: Path


def find_followed(
    reference: str,
    *,
    layout: Layout,
    stores: list[Store],
    cwd: Path,
    home: Path,
    variables: Mapping[str, str],
) -> Followed:
    """Return what a word on the command line means.

    In this order: a file that is there; the path of one that will be (it has a slash, or the
    suffix of a transcript); a native session; an agent, whose session is followed in its client's
    store if it is there, and in the agents directory if not. Raises `UsageError`, `NotATranscript`
    or `NoSuchAgent`.
    """
    path = cwd / reference
    if path.is_file() and path.stat().st_size:
        name = owner_of(Source(reference, path=path), registry.BUILT_IN)
        return Followed(_following(name), path)
    if path.exists() or "/" in reference or path.suffix == ".jsonl":
        if path.exists() and not path.is_file():
            raise UsageError(f"{reference} is no file", hint="`agentsdir list --native` shows ids")
        return Followed(stores[0].reader, path)
    if may_be_native(reference):
        try:
            located = find_native(stores, reference)
        except NoSuchAgent as error:
            try:
                return _of_agent(find_agent(layout, reference), stores, home, variables)
            except NoSuchAgent:
                raise error from None
        return Followed(located.store.reader, located.main)
    return _of_agent(find_agent(layout, reference), stores, home, variables)


def _of_agent(
    paths: AgentPaths, stores: list[Store], home: Path, variables: Mapping[str, str]
) -> Followed:
    state = read_agent(paths).state
    reader, native_id = _following(state.session.provider_name), state.native["id"]
    for store in stores:
        if store.reader is reader and store.folder.is_dir():
            for main in reader.locate(store.folder, native_id):
                if main.stem == native_id:  # and not one that merely begins so
                    return Followed(reader, main)
    for name in state.transcripts:
        if PurePosixPath(name).name == f"{native_id}.jsonl":
            return Followed(reader, store_path(paths, name))
    if not may_be_native(native_id):
        raise Invalid(f"agent {paths.id} has the native id {native_id!r}, which cannot be one")
    place = reader.paths(home, Path(state.native["cwd"]).resolve(), variables)
    return Followed(reader, place.transcripts / f"{native_id}.jsonl")


def _following(name: str) -> StoreReader:
    reader = registry.get(name).reader
    if not isinstance(reader, StoreReader):
        raise UsageError(
            f"sessions of {name!r} cannot be followed",
            hint="`agentsdir parse` or `agentsdir replay` reads what is there",
            kind="cannot-follow",
        )
    return reader


def live_translator() -> Translator:
    """Return a translator for the standard output of a client."""
    readers = (one.reader for one in registry.built_in())
    return next(one for one in readers if isinstance(one, LiveReader)).translate_stream()


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
