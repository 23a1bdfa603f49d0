"""An agent's session as one document: SavedSessionData and RuntimeSessionData.

See `inspect` in docs/commands.md; the shapes are session-saved and session-runtime of the schemas.
"""

from __future__ import annotations

import io
from array import array
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from agentsdir.adapters import registry
from agentsdir.engine.lookup import list_row
from agentsdir.engine.notices import find_child, is_spawned_block
from agentsdir.engine.parse import FoundSession, find_sessions, parse_session
from agentsdir.engine.replay import Settled
from agentsdir.formats import jsontext
from agentsdir.formats.blocks import MAIN, block_key, make_block
from agentsdir.formats.errors import AgentsdirError, UsageError
from agentsdir.formats.jsontext import LongList
from agentsdir.formats.source import Source
from agentsdir.formats.store import transcripts, workspace
from agentsdir.formats.store.derived import history_line
from agentsdir.formats.store.log import read_records
from agentsdir.formats.store.saved_files import raw_transcript

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from agentsdir.formats.blocks import Block, BlockSource
    from agentsdir.formats.store.layout import AgentPaths, Layout
    from agentsdir.formats.store.log import Record
    from agentsdir.formats.store.state import AgentState

_READ = ("main", "subagent")
_ENDINGS = {"success": "completed", "error": "failed"}


def saved_session(paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return the saved session: the list row, raw transcripts, workspace files, and no blocks.

    Only the transcripts of the present native session; those of earlier ones are among the `files`
    that `bundle.saved_files` adds. The raw ones are `LongText`.
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


def runtime_session(layout: Layout, paths: AgentPaths, state: AgentState) -> dict[str, Any]:
    """Return the saved session with its blocks, each list of them a `LongList`.

    The blocks are those that the log has since its last reset, with the `source` that the stored
    transcripts have for a block of that id. Each thread of the client and each agent that was
    spawned is an entry of `subagents`.
    """
    data = saved_session(paths, state)
    sources = _Sources(paths, state)
    logged = _LoggedBlocks()
    for record in read_records(paths.log):
        logged.add(record, sources.of)
    data["blocks"] = logged.thread(MAIN)
    raw = {entry["id"]: entry for entry in data["subagents"]}
    threads = [name for name in logged.threads if name != MAIN]
    # A reader names a thread by its conversation; some threads are also named by their file.
    entries = {name: raw.pop(name) for name in threads if name in raw}
    for name in threads:
        file = next((file for file in sources.files(name) if file in raw), None)
        if name not in entries and file is not None:
            entries[name] = raw.pop(file)
    data["subagents"] = [
        *({**entries.get(name, {}), "id": name, "blocks": logged.thread(name)} for name in threads),
        *({"blocks": [], **entry} for entry in raw.values()),
        *(
            {"id": child, "blocks": LongList(partial(_of_spawned, layout, state, block, at))}
            for child, (block, at) in logged.spawned.items()
        ),
    ]
    return data


class _Sources:
    """Where the blocks of an agent's present transcripts stand in them."""

    def __init__(self, paths: AgentPaths, state: AgentState) -> None:
        self._files: list[str] = []
        self._threads: dict[str, set[str]] = {}
        # By the hash of a block's key, where its four numbers stand: the file, and the place in it.
        self._rows: dict[int, int] = {}
        self._numbers = array("q")
        numbers: dict[str, int] = {}
        for found in _sessions(state, _transcripts(paths, state)):
            sink = parse_session(found, hidden=False)
            for block in sink.blocks("all"):
                if block["source"] is not None:
                    self._add(block, block["source"], numbers)
        self._files += numbers

    def _add(self, block: Block, source: BlockSource, numbers: dict[str, int]) -> None:
        self._threads.setdefault(block["conversationId"], set()).add(source["file"])
        self._rows[hash(block_key(block))] = len(self._numbers)
        place = (source["line"], source["offset"], source["length"])
        self._numbers.append(numbers.setdefault(source["file"], len(numbers)))
        self._numbers.extend(-1 if number is None else number for number in place)

    def of(self, key: int) -> BlockSource | None:
        """Return the source of a block by the hash of its key; None if no transcript has it."""
        row = self._rows.get(key)
        if row is None:
            return None
        file, *place = self._numbers[row : row + 4]
        line, offset, length = (None if number < 0 else number for number in place)
        return {"file": self._files[file], "line": line, "offset": offset, "length": length}

    def files(self, thread: str) -> list[str]:
        """Return the names of the files that a thread comes from, without their suffixes."""
        return sorted(map(_stem, self._threads.get(thread, ())))


def _sessions(state: AgentState, sources: list[Source]) -> list[FoundSession]:
    """Return an agent's transcripts as the sessions that their reader finds in them."""
    try:
        architecture = registry.get(state.session.provider_name)
    except UsageError:  # a program's own provider, which is not here
        return find_sessions(sources, "auto", lambda _: None)
    if architecture.reader is None:
        return []
    with registry.adapter_errors(architecture):
        return [FoundSession(architecture, one) for one in architecture.reader.discover(sources)]


class _LoggedBlocks:
    """The blocks of a log since its last reset, each once, at its first place, as it is last.

    Attributes:
        threads: by conversation, the places of its blocks.
        spawned: by agent id, the block of each spawned agent, and when it was logged last.
    """

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lines = Settled()
        self.threads: dict[str, array[int]] = {}
        self.spawned: dict[str, tuple[Block, str]] = {}

    def add(self, record: Record, source: Callable[[int], BlockSource | None]) -> None:
        """Add what a record says.

        Args:
            source: is given the hash of a block's key.
        """
        if record.event == "history.reset":
            self._begin()
        block = record.data.get("block")
        if record.event != "block" or not isinstance(block, dict):
            return
        key = hash(block_key(block))
        line = history_line(record._replace(data={"block": {**block, "source": source(key)}}))
        if not line:
            return
        count = len(self._lines)
        self._lines.add(line, key)
        if len(self._lines) > count:
            self.threads.setdefault(block_key(block)[0], array("q")).append(count)
        if is_spawned_block(block):
            child = str(block.get("subagentId"))
            first, _ = self.spawned.get(child, (block, ""))
            self.spawned[child] = {**block, "sessionId": first.get("sessionId")}, record.ts

    def thread(self, conversation: str) -> LongList:
        """Return the blocks of a conversation."""
        return LongList(partial(self._thread, self.threads.get(conversation, ())))

    def _thread(self, places: Iterable[int]) -> Iterator[bytes]:
        for piece in self._lines.runs(_runs(places)):
            yield from io.BytesIO(piece)


def _runs(places: Iterable[int]) -> Iterator[range]:
    """Yield ascending numbers as ranges."""
    run = range(0)
    for place in places:
        if run and place != run.stop:
            yield run
            run = range(0)
        run = range(run.start if run else place, place + 1)
    if run:
        yield run


def _of_spawned(layout: Layout, parent: AgentState, block: Block, at: str) -> Iterator[bytes]:
    """Yield the blocks of a spawned agent as a thread of its parent, each as a line of JSON.

    Those of its own threads are not in it.

    Args:
        block: of the agent in its parent's log.
        at: when that was logged.
    """
    child = str(block.get("subagentId"))
    found = find_child(layout, parent, child)
    own = _LoggedBlocks()
    if found is not None:
        with suppress(AgentsdirError, OSError):  # it may be removed meanwhile
            for record in read_records(found[0].log):
                own.add(record, lambda _: None)
    yield jsontext.encode_as_is(thread_start(block))
    for line in own.thread(MAIN).lines():
        yield jsontext.encode_as_is({**jsontext.decode(line), "conversationId": child})
    if (end := thread_end(block, at)) is not None:
        yield jsontext.encode_as_is(end)


def thread_start(block: Block) -> Block:
    """Return the block that opens the thread of a spawned agent (decision D29).

    Args:
        block: of the agent in its parent's log, with the `sessionId` that it was first logged with.
    """
    return _bound(block, "start", block.get("timestamp"), "started")


def thread_end(block: Block, at: str) -> Block | None:
    """Return the block that closes the thread; None as long as its first turn has not ended.

    Args:
        block: as for `thread_start`.
        at: when it was logged last.
    """
    how = _ENDINGS.get(str(block.get("status")))
    return None if how is None else _bound(block, "end", at, how)


def _bound(block: Block, which: str, moment: Any, how: str) -> Block:
    child, session = str(block.get("subagentId")), str(block.get("sessionId"))
    fields = {"subtype": f"session_{which}", "message": f"Subagent {block.get('name')} {how}"}
    moment = moment if isinstance(moment, str) else None
    return make_block("system", f"{child}:{which}", child, session, moment, None, **fields)


def _captured(paths: AgentPaths) -> list[dict[str, Any]]:
    """Return the manifest entries of the captured files."""
    try:
        files = workspace.read_manifest(paths)["files"]
    except FileNotFoundError:
        return []
    return [entry for entry in files if "deleted" not in entry]


def _transcripts(paths: AgentPaths, state: AgentState) -> list[Source]:
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
    """Return a stored file as raw transcript; None if it is missing."""
    try:
        return raw_transcript(transcripts.whole_file(path, path.name))
    except FileNotFoundError:
        return None
