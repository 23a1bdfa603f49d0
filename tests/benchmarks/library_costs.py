"""Prints what `session.send` to `echo` costs, as JSON: pairs of CPU seconds and a floor's.

Usage: library_costs.py FOLDER. Everything is synced. Two floors: the turn's records appended to a
log one by one, each durable before the next, and no more (`session`); and their bytes appended to a
bare file, each with an fsync (`bytes`). The figures are minima over interleaved rounds.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from turn_costs import PROMPT, ROUNDS, TIME, Ids, spent

from agentsdir import AgentConfig, App, Session
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.engine.services import Services
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.log import Record, read_records

TURNS = 20
BEFORE = 5
"""Turns that the session has had."""


class Library:
    """An agents directory whose writes are always synced."""

    def __init__(self, folder: Path) -> None:
        self._layout = Layout(folder)
        self._ids = Ids()

    def _services(self) -> Services:
        return Services(
            self._layout, lambda: TIME, lambda _seconds: None, self._ids, Disk(), lambda: None
        )

    def new(self) -> AgentPaths:
        """Make an agent with some turns."""
        new = NewAgent(cwd="/", login="me", provider="echo")
        paths = self._layout.agent(create_agent(self._services(), new))
        self.turns(paths, BEFORE)
        return paths

    def turns(self, paths: AgentPaths, count: int = TURNS) -> None:
        """Run turns, each with services of its own."""
        for _ in range(count):
            send(self._services(), paths, PROMPT, lambda _event: None)

    def records(self, paths: AgentPaths, turn: list[Record]) -> None:
        """Append the records of as many turns."""
        for _ in range(TURNS):
            ids = {"message_id": self._ids.agent(), "turn_id": self._ids.agent()}
            disk, known = Disk(), None
            with disk.synced_at_end():
                for record in turn:
                    data = record.data | {key: ids[key] for key in ids.keys() & record.data.keys()}
                    if "message_ids" in data:
                        data["message_ids"] = [ids["message_id"]]
                    with write_agent(paths, disk=disk, known=known) as writer:
                        writer.append(record.event, data, TIME)
                        known = writer.state


def say(session: Session, count: int = TURNS) -> None:
    """Send as many prompts through the library, and wait for each answer."""
    for _ in range(count):
        assert session.send(PROMPT[0]["text"]).result.response


def append_bytes(path: Path, lines: list[bytes]) -> None:
    """Append the same bytes."""
    for _ in range(TURNS):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for line in lines:
            os.write(descriptor, line)
            os.fsync(descriptor)
        os.close(descriptor)


def turn_of(paths: AgentPaths) -> tuple[list[Record], list[bytes]]:
    """Return the records of an agent's last turn, and their lines."""
    records, lines = list(read_records(paths.log)), paths.log.read_bytes().splitlines(True)
    start = max(n for n, one in enumerate(records) if one.event == "message.enqueued")
    return records[start:], lines[start:]


def measure(folder: Path) -> dict[str, Any]:
    """Return the figures."""
    library = Library(folder / "root")
    spoken, noted = library.new(), library.new()
    turn, lines = turn_of(spoken)
    with App(AgentConfig(provider="echo"), root=folder / "other") as app:
        session = app.session("u")
        say(session, BEFORE)
        rounds = [
            (
                spent(lambda: say(session)),
                spent(lambda: library.records(noted, turn)),
                spent(lambda: append_bytes(folder / "bare", lines)),
            )
            for _ in range(ROUNDS)
        ]
    ours, records, bare = (min(times) for times in zip(*rounds, strict=True))
    return {"session": (ours, records), "bytes": (ours, bare)}


def main() -> None:
    """Measure, and print."""
    gc.set_threshold(100_000)
    print(json.dumps(measure(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
