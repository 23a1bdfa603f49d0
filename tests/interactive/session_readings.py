"""A recording's sessions, read in the ways in which the commands read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keys_log import Recording

from agentsdir.adapters import registry
from agentsdir.adapters.protocol import StoreReader
from agentsdir.engine.parse import find_sessions, parse_session, walk
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

Blocks = dict[str, list[dict[str, Any]]]


def reader_of(recording: Recording) -> StoreReader:
    """Return who reads this client's store."""
    reader = registry.get("claude" if recording.is_claude else "gemini").reader
    assert isinstance(reader, StoreReader)
    return reader


def folder_sinks(recording: Recording, *, hidden: bool = False) -> dict[Path, ParseSink]:
    """Parse all of the home folder, as `parse DIR` does; return each session by its main file."""
    sources = walk(recording.home, str(recording.home), _nothing)
    return {
        Path(one.files.transcripts[0].source.name): parse_session(one, hidden=hidden)
        for one in find_sessions(sources, "auto", _nothing)
    }


def parsed_folder(recording: Recording) -> Blocks:
    """Return what `parse DIR --view all` prints."""
    return {str(m): list(s.blocks("all")) for m, s in folder_sinks(recording).items()}


def parsed_files(recording: Recording) -> Blocks:
    """Return what `parse FILE --view all` prints of each main file."""
    found = {}
    for main in folder_sinks(recording):
        (one,) = find_sessions([Source(str(main), path=main)], "auto", _refuse)
        found[str(main)] = list(parse_session(one, hidden=False).blocks("all"))
    return found


def followed(recording: Recording) -> Blocks:
    """Return what `follow FILE` leaves of each session that is over."""
    found = {}
    for main in folder_sinks(recording):
        follower, reducer = reader_of(recording).follow(main), Reducer()
        for event in (*follower.poll(), *follower.end()):
            reducer.apply(event)
        found[str(main)] = _all_blocks(reducer)
    return found


def grown(
    recording: Recording, home: Path, look: Callable[[float, Blocks], None] | None = None
) -> Blocks:
    """Write the recording anew below `home`, row by row, and follow its sessions meanwhile.

    `look` is called whenever the recorded session stood still, with that time and what was there.
    """
    mains = [home / main.relative_to(recording.home) for main in folder_sinks(recording)]
    watched = {main: (reader_of(recording).follow(main), Reducer()) for main in mains}
    _copy_what_does_not_grow(recording, home)
    files = {path: path.read_bytes().splitlines(keepends=True) for path in recording.transcripts()}
    written = dict.fromkeys(files, 0)

    def write(upto: dict[Path, int]) -> None:
        for path, lines in files.items():
            copy = home / path.relative_to(recording.home)
            copy.parent.mkdir(parents=True, exist_ok=True)
            for line in lines[written[path] : upto.get(path, written[path])]:
                with copy.open("ab") as stream:
                    stream.write(line)
                poll()
            written[path] = max(written[path], upto.get(path, 0))

    def poll() -> None:
        for follower, reducer in watched.values():
            for event in follower.poll():
                reducer.apply(event)

    for at, upto in recording.stops:
        write(upto)
        poll()
        if look is not None:
            look(at, {str(main): _all_blocks(reducer) for main, (_, reducer) in watched.items()})
    write({path: len(lines) for path, lines in files.items()})
    for follower, reducer in watched.values():
        for event in (*follower.poll(), *follower.end()):
            reducer.apply(event)
    return {str(main): _all_blocks(reducer) for main, (_, reducer) in watched.items()}


def _copy_what_does_not_grow(recording: Recording, home: Path) -> None:
    growing = set(recording.transcripts())
    for path in recording.store.rglob("*"):
        if path.is_file() and path not in growing:
            copy = home / path.relative_to(recording.home)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


def _all_blocks(reducer: Reducer) -> list[dict[str, Any]]:
    return [block for blocks in reducer.conversations.values() for block in blocks]


def compared(blocks: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return blocks by conversation, without what a way of reading may say otherwise."""
    found: dict[str, list[dict[str, Any]]] = {}
    for block in blocks:
        plain = {name: value for name, value in block.items() if name not in ("source", "usage")}
        if not plain.get("superseded"):
            plain.pop("superseded", None)
        found.setdefault(block["conversationId"], []).append(plain)
    return found


def of_sessions(found: Blocks) -> Iterator[list[dict[str, Any]]]:
    """Yield the blocks of each session in the order of their files."""
    for name in sorted(found):
        yield found[name]


def _nothing(_: Exception) -> None:
    """Pass over what is no transcript."""


def _refuse(error: Exception) -> None:
    raise error
