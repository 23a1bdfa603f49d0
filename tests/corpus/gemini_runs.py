"""Recorded runs of Gemini CLI: what each printed, and its chat files as they stood at any time."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats import times
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.blocks import Block

READER = ARCHITECTURE.reader
assert READER is not None
_DEADLY = frozenset({"2", "9", "15"})  # signals that end a run


class Run(NamedTuple):
    """One run of the client: its version, its session, what it printed, whether it was ended."""

    version: str
    session: str
    lines: tuple[bytes, ...]
    broken: bool

    @property
    def moments(self) -> list[str]:
        """The time of each line, in order; of one without, that of the line before."""
        found, last = [], ""
        for line in self.lines:
            last = max(last, _moment(_loads(line).get("timestamp")))
            found.append(last)
        return found


def _loads(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:  # a signal may have cut the last one
        return {}
    return value if isinstance(value, dict) else {}


def _moment(value: Any) -> str:
    return times.native(value) or ""


def content(path: Path) -> bytes:
    """Return what a recorded file holds."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


class Tree:
    """The chat files that a scenario left, each as it stood at any moment.

    The times in a file say what was written when: a log's rows stay, a document is made of the
    messages and calls that had come by then.
    """

    def __init__(self, scenario: Path) -> None:
        self._files: dict[str, list[tuple[str, bytes]] | dict[str, Any]] = {}
        for path in sorted(scenario.glob("tree/home*/.gemini/tmp/*/chats/**/*.json*")):
            data = content(path)
            name = str(path.relative_to(scenario)).removesuffix(".gz")
            self._files[name] = _timed(data) if name.endswith(".jsonl") else json.loads(data)

    def at(self, moment: str | None) -> list[Source]:
        """Return the files as of a moment, or at the end."""
        found = []
        for name, file in self._files.items():
            if isinstance(file, dict):
                data = json.dumps(_until(file, moment)).encode()
                there = moment is None or _moment(file["startTime"]) <= moment
            else:
                data = b"".join(row for at, row in file if moment is None or at <= moment)
                there = bool(data)
            if there:
                found.append(Source(name, data=data))
        return found

    def lay(self, folder: Path, moment: str | None) -> None:
        """Write the files as of a moment below a folder, where they stand as of an earlier one."""
        for source in self.at(moment):
            path, data = folder / source.name, source.read()
            path.parent.mkdir(parents=True, exist_ok=True)
            there = path.stat().st_size if path.exists() else 0
            if path.suffix == ".json":
                path.write_bytes(data)
            elif there < len(data):
                with path.open("ab") as log:
                    log.write(data[there:])

    def main(self, session: str) -> str:
        """Return the name of a session's main file; of several, of the one that says most."""
        return self._best(session, None)[0]

    def read(self, session: str, moment: str | None) -> ParseSink:
        """Parse the session of that id."""
        return self._best(session, moment)[1]

    def _best(self, session: str, moment: str | None) -> tuple[str, ParseSink]:
        best, most = ("", ParseSink()), 0
        for files in READER.discover(self.at(moment)):
            first = files.transcripts[0]
            if first.role == "main" and session.encode() in first.source.head()[:4096]:
                sink = ParseSink()
                READER.parse_transcripts(files, sink)
                count = sum(1 for _ in sink.blocks("all"))
                if count > most:
                    best, most = (first.source.name, sink), count
        return best


def _timed(data: bytes) -> list[tuple[str, bytes]]:
    rows, last = [], ""
    for line in data.split(b"\n"):
        row = _loads(line)
        update = row.get("$set")
        said = update.get("lastUpdated") if isinstance(update, dict) else None
        named = [said, row.get("timestamp"), row.get("startTime")]
        calls = row.get("toolCalls")
        named += [call.get("timestamp") for call in calls] if isinstance(calls, list) else []
        last = max(last, *(_moment(one) for one in named))
        rows.append((last, line + b"\n"))
    return rows


def _until(document: dict[str, Any], moment: str | None) -> dict[str, Any]:
    if moment is None:
        return document
    kept = []
    for message in document["messages"]:
        if _moment(message["timestamp"]) <= moment:
            message = dict(message)
            if "toolCalls" in message:
                calls = [c for c in message["toolCalls"] if _moment(c["timestamp"]) <= moment]
                message["toolCalls"] = calls
            kept.append(message)
    return {**document, "messages": kept}


class Part(NamedTuple):
    """One run of a session: the blocks that were there before it, and those that it left."""

    run: Run
    tree: Tree
    start: str
    end: str | None
    before: frozenset[tuple[str, str]]
    after: list[Block]


def runs(scenario: Path) -> Iterator[Run]:
    """Yield the runs of a scenario that printed a session, in order."""
    described = scenario.glob("run-*.cmd.json")
    for path in sorted(described, key=lambda path: int(path.name.split(".")[0][4:])):
        about = json.loads(path.read_bytes())
        (stdout,) = scenario.glob(f"{path.name.removesuffix('.cmd.json')}.stdout*")
        lines = tuple(line + b"\n" for line in content(stdout).split(b"\n") if line)
        first = _loads(lines[0]) if lines else {}
        if first.get("type") == "init":
            broken = str(about["signal"]) in _DEADLY or _loads(lines[-1]).get("type") != "result"
            version = scenario.parent.name.removeprefix("gemini-")
            yield Run(version, first["session_id"], lines, broken)


def parts(scenario: Path) -> Iterator[Part]:
    """Yield what each run of a scenario added to its session."""
    tree = Tree(scenario)
    found = list(runs(scenario))
    for number, run in enumerate(found):
        starts = [other.moments[0] for other in found[number + 1 :] if other.session == run.session]
        start, end = _before(run.moments[0]), _before(starts[0]) if starts else None
        before = {_key(block) for block in tree.read(run.session, start).blocks("all")}
        there = tree.read(run.session, end).blocks("all")
        after = [block for block in there if _key(block) not in before]
        yield Part(run, tree, start, end, frozenset(before), after)


def _key(block: Block) -> tuple[str, str]:
    return block["conversationId"], block["id"]


def _before(moment: str) -> str:
    """Return the moment at which a run that says its first line then had not begun to write."""
    earlier = times.from_text(moment) - timedelta(milliseconds=300)
    return earlier.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
