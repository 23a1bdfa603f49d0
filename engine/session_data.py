"""An agent's session as one document: SavedSessionData and RuntimeSessionData.

See `inspect` in docs/commands.md; the shapes are session-saved and session-runtime of the schemas.
"""

from __future__ import annotations

import base64
import io
import os
from codecs import getincrementaldecoder
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from agentsdir.adapters import registry
from agentsdir.engine.lookup import list_row
from agentsdir.engine.parse import FoundSession, parse_session
from agentsdir.formats.blocks import MAIN
from agentsdir.formats.jsontext import LongList, LongText
from agentsdir.formats.source import Source
from agentsdir.formats.store import transcripts, workspace
from agentsdir.formats.store.layout import open_plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from agentsdir.formats.sink import ParseSink
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState

    # One conversation: the runs of its blocks in each sink that has any.
    _Thread: TypeAlias = list[tuple[ParseSink, list[range]]]

_READ = ("main", "subagent")
_PIECE = 3 * 256 * 1024
"""Bytes of a raw transcript that are printed at a time; base64 has them in groups of three."""


def saved_session(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return the saved session: the list row, raw transcripts, workspace files, and no blocks.

    Only the transcripts of the present native session; those of earlier ones stay in the folder.
    The raw ones are `LongText`.
    """
    own = transcripts.of_session(state.transcripts, state.native["id"])
    stored = {native: transcripts.store_path(paths, native) for native in own}
    saved = {
        native: raw
        for native, path in stored.items()
        if own[native]["role"] in _READ and (raw := _raw(path)) is not None
    }
    main = next((native for native in saved if own[native]["role"] == "main"), None)
    data = list_row(paths, state)
    data.update({"rawTranscript": None} if main is None else saved[main])
    data["subagents"] = [
        {"id": _stem(native), **raw}
        for native, raw in saved.items()
        if own[native]["role"] == "subagent"
    ]
    data["workspaceFiles"] = _captured(paths)
    return data


def runtime_session(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return the saved session with its transcripts parsed into blocks, each a `LongList`."""
    data = saved_session(paths, state)
    architecture = registry.get(state.session.provider_name)
    threads: dict[str, _Thread] = {MAIN: []}
    if architecture.reader is not None:
        with registry.adapter_errors(architecture):
            sessions = architecture.reader.discover(_sources(paths, state))
        for files in sessions:
            sink = parse_session(FoundSession(architecture, files), hidden=False)
            for conversation, runs in sink.threads().items():
                threads.setdefault(conversation, []).append((sink, runs))
    data["blocks"] = LongList(partial(_lines, threads.pop(MAIN)))
    raw = {entry["id"]: entry for entry in data["subagents"]}
    # The reader names a thread by its conversation; some threads are also named by their file.
    entries = {conversation: raw.pop(conversation, {}) for conversation in threads}
    for conversation, thread in threads.items():
        if not entries[conversation]:
            names = sorted(_files(thread))
            entries[conversation] = next((raw.pop(name) for name in names if name in raw), {})
    found = [
        {**entries[name], "id": name, "blocks": LongList(partial(_lines, thread))}
        for name, thread in threads.items()
    ]
    found += [{"blocks": [], **entry} for entry in raw.values()]
    data["subagents"] = found
    return data


def _lines(thread: _Thread) -> Iterator[bytes]:
    """Yield the blocks of a conversation, each as a line of JSON."""
    for sink, runs in thread:
        for piece in sink.pieces(runs=runs):
            yield from io.BytesIO(piece)


def _files(thread: _Thread) -> set[str]:
    """Return the names of the files that a conversation comes from, without their suffixes."""
    sources = (orjson.loads(line).get("source") for line in _lines(thread))
    return {_stem(source["file"]) for source in sources if source}


def _captured(paths: AgentPaths) -> list[dict[str, Any]]:
    """Return the manifest entries of the captured files."""
    try:
        files = workspace.read_manifest(paths)["files"]
    except FileNotFoundError:
        return []
    return [entry for entry in files if "deleted" not in entry]


def _sources(paths: AgentPaths, state: AgentState) -> list[Source]:
    """Return the main and subagent transcripts; readers find files beside them by themselves."""
    found = []
    for native, entry in transcripts.of_session(state.transcripts, state.native["id"]).items():
        path = transcripts.store_path(paths, native)
        if entry["role"] in _READ and path.is_file():
            found.append(Source(native, path=path))
    return found


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".", 1)[0].removeprefix("agent-")


def _raw(path: Path) -> dict[str, Any] | None:
    """Return a stored file as text, or as base64 if it is not UTF-8; None if it is missing.

    It is read from end to end for that, and again when it is printed.
    """
    try:
        with os.fdopen(open_plain(path), "rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            is_text = _is_utf8(transcripts.pieces(stream, size))
    except FileNotFoundError:
        return None
    file = transcripts.beginning(path, size, path.name)
    if is_text:
        return {"rawTranscript": LongText(partial(_text, file))}
    return {"rawTranscriptBase64": LongText(partial(_base64, file))}


def _is_utf8(pieces: Iterable[bytes]) -> bool:
    decoder = getincrementaldecoder("utf-8")()
    try:
        for piece in pieces:
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _text(file: Source) -> Iterator[str]:
    with file.open() as stream:
        decoder = getincrementaldecoder("utf-8")()
        while piece := stream.read(_PIECE):
            yield decoder.decode(piece)


def _base64(file: Source) -> Iterator[str]:
    with file.open() as stream:
        while piece := stream.read(_PIECE):
            yield base64.b64encode(piece).decode("ascii")
