"""Sessions that are cut at a row or changed, for readings that go on from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from cuts import as_another_has_it, moved, sessions_in
from gemini_files import log

from agentsdir.adapters.gemini.discover import family_of
from agentsdir.adapters.gemini.reader import GeminiReader
from agentsdir.adapters.protocol import ReaderState, ResumableReader, SessionFiles
from agentsdir.formats.blocks import block_key
from agentsdir.formats.sink import ParseSink

if TYPE_CHECKING:
    import random
    from pathlib import Path

READER: ResumableReader = GeminiReader()


class Begun(NamedTuple):
    """Where a reading ended, and the keys of its blocks."""

    state: ReaderState | None
    keys: set[tuple[str, str]]


def begun(session: SessionFiles, state: ReaderState | None = None) -> Begun:
    """Return where a reading ends, as another process has it."""
    sink = ParseSink()
    end = as_another_has_it(READER.resume(session, sink, state))
    return Begun(end, {block_key(block) for block in sink.blocks("all")})


def logs_in(*folders: Path) -> list[SessionFiles]:
    """Return the sessions of this client in folders."""
    return sessions_in(READER, lambda head: family_of(head) == "log", *folders)


def resumed(said: list[dict[str, Any]], chosen: random.Random) -> dict[str, Any]:
    """Return a list of messages as a resume writes it: some are missing, some have new ids."""
    restated = []
    for value in said:
        how = chosen.choice(["same", "same", "id", "parts", "text", "gone", "response"])
        value = dict(value)
        if how == "id":
            value["id"] = f"new-{chosen.random()}"
        if how in ("parts", "response") and isinstance(value.get("content"), str):
            calls = [
                {"functionCall": {name: call.get(name) for name in ("id", "name", "args")}}
                for call in value.pop("toolCalls", None) or []
                if isinstance(call, dict)
            ]
            value["content"] = [{"text": value["content"]}, *calls]
        if how == "text":
            value["content"] = [{"text": f"other {chosen.random()}"}]
        if how != "gone":
            restated.append(value)
    return {"$set": {"messages": restated, "lastUpdated": "2026-01-03T00:00:00.000Z"}}


def mutated(data: bytes, chosen: random.Random) -> bytes:
    """Return rows doubled, swapped, cut, with ids of earlier ones, rewound and restated."""
    rows = data.splitlines(keepends=True)
    for _ in range(chosen.randint(1, 4)):
        first, second = sorted(chosen.choices(range(len(rows)), k=2))
        how = chosen.choice(["double", "swap", "cut", "id", "fresh", "calls", "rewind", "resume"])
        if moved(rows, how, first, second):
            continue
        if how == "resume":
            said = [one for row in rows[:second] if "id" in (one := _value(row))]
            rows.insert(second, log(resumed(said[-chosen.randint(1, 30) :], chosen)))
        elif how == "rewind":
            target = _value(rows[first]).get("id", "unknown")
            rows.insert(second, log({"$rewindTo": target}))
        else:
            earlier, later = _value(rows[first]), _value(rows[second])
            if how == "calls" and "toolCalls" in earlier:
                rows[second] = log({**later, "id": later.get("id", "x"), "type": "gemini",
                                    "toolCalls": earlier["toolCalls"]})  # fmt: skip
            elif "id" in later:
                name = earlier.get("id", "x") if how == "id" else f"made-{chosen.random()}"
                rows[second] = log({**later, "id": name})
    return b"".join(rows)


def _value(row: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(row)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
