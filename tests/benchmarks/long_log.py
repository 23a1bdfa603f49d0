"""Adds an agent with a long log to an agents directory: long_log.py ROOT MEGABYTES [TURNS].

It prints the agent's id. With a number of turns, the log has so many of them, whatever their size.

Two turns of another agent are made by the commands `new`, `send` and `suspend`. The second one is
put into the new agent's log again and again, each time with ids and words of its own, and so are
its rows into the transcript. Of each turn, one block is logged a second time, as it is when a
client says more of it later. A test has `validate` look at the result.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson

from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import making_agent
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import read_records

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
PROMPT = "what-is-said-each-time"
WORDS = (
    "what is said in a turn of a long log, of which each has some two thousand characters; " * 23
)
ONCE = ("session.state", "transcript.synced")
"""Events of a turn that stand once in the long log."""


def add_agent(root: Path, megabytes: float, turns: int = 0) -> str:
    """Add the agent; its log has about so many megabytes, or so many turns. Return its id."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = root / "settings.toml"
    settings.touch(0o600)
    settings.write_text('durability = "never"\n')
    first = _agentsdir(root, "new").strip()
    for prompt in ("first", PROMPT):
        _agentsdir(root, "send", first, prompt)
    _agentsdir(root, "suspend", first)
    layout = Layout(root)
    (native,) = layout.agent(first).transcripts.glob("*-*.jsonl")
    rows = native.read_bytes().splitlines()
    rows = rows[len(rows) // 2 :]
    records = list(read_records(layout.agent(first).log))
    begin = max(at for at, one in enumerate(records) if one.event == "message.enqueued")
    head = [one for one in records[:begin] if one.event in ("session.created", "session.state")]
    turn = [one for one in records[begin:] if one.event not in ONCE]
    last = records[-1]
    again = [one for one in turn if one.event == "block"][-1]
    turn.insert(-1, again._replace(data={**again.data, "turn_id": None}))
    ids = [(one, one[:-1] + "f") for one in (first, last.session_id, native.stem)]
    names = {
        one.data[name] for one in turn for name in ("message_id", "turn_id") if one.data.get(name)
    }

    def swapped(data: Any, number: int) -> Any:
        own = [(name, f"{name[:16]}{number:08}") for name in names]
        said = f"{number} {WORDS[number % 50 :]}"
        return _swap(data, [*ids, *own, (":2:", f":{number}:"), (PROMPT, said)])

    size = sum(len(orjson.dumps(swapped(one._asdict(), 1))) for one in turn)
    turns = turns or max(1, round(megabytes * 1e6 / size))
    with making_agent(layout, ids[0][1], ids[1][1], Disk(Durability.NEVER)) as made:
        for one in head:
            made.append(one.event, _swap(one.data, ids), one.ts)
        for number in range(1, turns + 1):
            for one in turn:
                made.append(one.event, swapped(one.data, number), one.ts)
        written = (
            orjson.dumps(swapped(orjson.loads(row), number)) + b"\n"
            for number in range(1, turns + 1)
            for row in rows
        )
        path = f"{ids[2][1]}.jsonl"
        synced = made.store(path, "main", Source(path, data=b"".join(written)))
        made.append("transcript.synced", {"files": [synced.as_entry()]}, last.ts)
        made.append(last.event, last.data, last.ts)
    return ids[0][1]


def _swap(value: Any, pairs: list[tuple[str, str]]) -> Any:
    text = orjson.dumps(value).decode()
    for old, new in pairs:
        text = text.replace(old, new)
    return orjson.loads(text)


def _agentsdir(root: Path, *arguments: str) -> str:
    command = [AGENTSDIR, "--root", str(root), *arguments]
    return subprocess.run(
        command, env={**os.environ, "HOME": str(root)}, check=True, capture_output=True, text=True
    ).stdout


if __name__ == "__main__":
    print(add_agent(Path(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:])))
