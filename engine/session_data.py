"""SavedSessionData and RuntimeSessionData (seed session-type-system, "Type hierarchy").

Saved keeps raw transcripts and never blocks; runtime is saved plus the blocks that the adapter
makes of them: load, parse, runtime.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from agentsdir.adapters import registry
from agentsdir.engine.agents import list_row
from agentsdir.engine.parsing import Found, parse_session
from agentsdir.formats.directory import transcripts, workspace
from agentsdir.formats.reading.blocks import MAIN
from agentsdir.formats.reading.source import Source

if TYPE_CHECKING:
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState

_READ = ("main", "subagent")


def saved_session(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return what is on disk for a session: the list row, raw transcripts, workspace files.

    These are the transcripts of the native session in force; what an earlier one left (before a
    reset, say) stays in the folder and is not among them.
    """
    own = transcripts.of_session(state.transcripts, state.native["id"])
    saved = transcripts.load(paths, [path for path in own if own[path]["role"] in _READ])
    main = next((path for path in saved if own[path]["role"] == "main"), None)
    data = list_row(paths, state)
    data.update({"rawTranscript": None} if main is None else _raw(saved[main]))
    data["subagents"] = [
        {"id": _stem(path), **_raw(saved[path])}
        for path in saved
        if own[path]["role"] == "subagent"
    ]
    data["workspaceFiles"] = _captured(paths)
    return data


def runtime_session(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return the saved session with its transcripts parsed into blocks."""
    data = saved_session(paths, state)
    architecture = registry.get(state.session.provider_name)
    blocks: dict[str, list[dict[str, Any]]] = {MAIN: []}
    if architecture.reader is not None:
        with registry.adapter_errors(architecture):
            sessions = architecture.reader.discover(_sources(paths, state))
        for files in sessions:
            for block in parse_session(Found(architecture, files), hidden=False).blocks():
                blocks.setdefault(block["conversationId"], []).append(block)
    data["blocks"] = blocks.pop(MAIN)
    raw = {entry["id"]: entry for entry in data["subagents"]}
    # The reader names a thread; a file's name is another name for some of them.
    entries = {conversation: raw.pop(conversation, {}) for conversation in blocks}
    for conversation, thread in blocks.items():
        names = sorted({_stem(block["source"]["file"]) for block in thread if block.get("source")})
        if not entries[conversation]:
            entries[conversation] = next((raw.pop(name) for name in names if name in raw), {})
    threads = [{**entries[name], "id": name, "blocks": blocks[name]} for name in blocks]
    threads += [{"blocks": [], **entry} for entry in raw.values()]
    data["subagents"] = threads
    return data


def _captured(paths: AgentPaths) -> list[dict[str, Any]]:
    """Return the files of the working directory that were captured, without their content."""
    try:
        files = workspace.read_manifest(paths)["files"]
    except FileNotFoundError:
        return []
    return [entry for entry in files if "deleted" not in entry]


def _sources(paths: AgentPaths, state: AgentState) -> list[Source]:
    """Return the transcripts to read; what lies beside them, readers look for themselves."""
    found = []
    for native, entry in transcripts.of_session(state.transcripts, state.native["id"]).items():
        path = transcripts.store_path(paths, native)
        if entry["role"] in _READ and path.is_file():
            found.append(Source(native, path=path))
    return found


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].split(".", 1)[0].removeprefix("agent-")


def _raw(data: bytes) -> dict[str, Any]:
    """Return raw bytes as text, or in base64 where they are no UTF-8."""
    try:
        return {"rawTranscript": data.decode()}
    except UnicodeDecodeError:
        return {"rawTranscriptBase64": base64.b64encode(data).decode("ascii")}
