"""Prints what turns and events cost in one process, as JSON: pairs of CPU seconds and a floor's.

Usage: turn_costs.py FOLDER. The figures are minima over interleaved rounds.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.engine.inbox import Message, enqueue
from agentsdir.engine.services import Services
from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import load_sound, making_agent, read_agent, write_agent
from agentsdir.formats.store.files import Disk, Durability
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.log import read_records

if TYPE_CHECKING:
    from collections.abc import Callable

EVENTS = 200
FEW_TURNS, MANY_TURNS = 10, 5_000
FEW_WAIT, MANY_WAIT = 100, 10_000
TURNS = 5
ROUNDS = 12
MEGABYTES = 100
TIME = "2026-01-02T03:04:05.678900Z"
PROMPT = [{"type": "text", "text": " ".join(["word"] * 20)}]
ROW = (
    b'{"type":"assistant","uuid":"%016d","message":{"role":"assistant","content":'
    b'[{"type":"text","text":"' + b"some words of an answer " * 40 + b'"}]}}\n'
)


class Ids:
    """Ids that count."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def agent(self) -> str:
        """Return the next one."""
        return f"a{next(self._count):023d}"

    def session(self) -> str:
        """Return the next one."""
        return f"{next(self._count):032x}"


def spent(act: Callable[[], object]) -> float:
    """Return the CPU seconds that a call takes."""
    before = time.process_time()
    act()
    return time.process_time() - before


def least(ours: Callable[[], object], floor: Callable[[], object]) -> tuple[float, float]:
    """Return the least CPU seconds of each, measured in turn."""
    pairs = [(spent(ours), spent(floor)) for _ in range(ROUNDS)]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


class Root:
    """An agents directory whose writes are never synced."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder)
        self._ids = Ids()

    def services(self) -> Services:
        """Return what one command has."""
        disk = Disk(Durability.NEVER)
        return Services(
            self.layout, lambda: TIME, lambda _seconds: None, self._ids, disk, lambda: None
        )

    def new(self) -> AgentPaths:
        """Make an echo agent."""
        new = NewAgent(cwd="/w", login="me", provider="echo")
        return self.layout.agent(create_agent(self.services(), new))

    def turns(self, paths: AgentPaths, count: int) -> None:
        """Run turns, each as a command of its own does."""
        for _ in range(count):
            send(self.services(), paths, PROMPT, lambda _event: None)

    def long_agent(self, turns: int) -> AgentPaths:
        """Make an agent that looks as after so many turns, by repeating what one turn wrote."""
        model = self.new()
        self.turns(model, 1)
        records = list(read_records(model.log))
        (stored,) = model.transcripts.glob("*.jsonl")
        agent_id, session_id = self._ids.agent(), self._ids.session()
        first = records[0].data
        native = {**first["native"], "id": f"{session_id[:8]}-0000-4000-8000-000000000000"}
        created = {**first, "agent_id": agent_id, "native": native}
        name = f"{native['id']}.jsonl"
        with making_agent(self.layout, agent_id, session_id, Disk(Durability.NEVER)) as made:
            made.append("session.created", created, TIME)
            change = next(one for one in records if one.event == "session.state")
            made.append(change.event, change.data, TIME)
            left_out = ("session.created", "session.state", "transcript.synced")
            turn = [one for one in records if one.event not in left_out]
            for _ in range(turns):
                for record in turn:
                    made.append(record.event, record.data, TIME)
            synced = made.store(name, "main", Source(name, data=stored.read_bytes() * turns))
            made.append("transcript.synced", {"files": [synced.as_entry()]}, TIME)
        return self.layout.agent(agent_id)

    def waiting(self, count: int) -> AgentPaths:
        """Make an agent for which so many messages wait."""
        paths = self.new()
        self.queue(paths)
        model = list(read_records(paths.log))[-1]
        with write_agent(paths, disk=Disk(Durability.NEVER)) as writer:
            for _ in range(1, count):
                data = {**model.data, "message_id": self._ids.agent()}
                writer.append(model.event, data, TIME)
        return paths

    def queue(self, paths: AgentPaths) -> None:
        """Put one more message into an inbox, as a command of its own does."""
        services = self.services()
        with services.disk.synced_at_end():
            enqueue(services, paths, Message(PROMPT))


def event(number: int) -> tuple[str, dict[str, Any]]:
    """Return an event of some hundred bytes."""
    return "hook.failed", {"hook": "h", "message": f"{number:06d} " + "y" * 80}


def append_events(paths: AgentPaths) -> None:
    """Append events in one hold of the lock."""
    with write_agent(paths, disk=Disk(Durability.NEVER)) as writer:
        for number in range(EVENTS):
            kind, data = event(number)
            writer.append(kind, data, TIME)


def write_lines(path: Path) -> None:
    """Write the same lines: encoded, hashed for the next one, one write each."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    previous = "0" * 16
    for number in range(EVENTS):
        kind, data = event(number)
        record = {"seq": number, "ts": TIME, "event": kind, "session_id": "0" * 32}
        line = orjson.dumps({**record, "data": data, "prev": previous}) + b"\n"
        previous = hashlib.sha256(line[:-1]).hexdigest()[:16]
        os.write(descriptor, line)
    os.close(descriptor)


def loads(path: Path) -> None:
    """Decode each line of a file."""
    with path.open("rb") as lines:
        for line in lines:
            orjson.loads(line)


def sync_more(root: Root, paths: AgentPaths, client: Path) -> None:
    """Believe a client's stored transcript and store what it has more, as a turn does."""
    load_sound(paths, read_agent(paths).state)
    with client.open("ab") as stream:
        stream.write(ROW % 0)
    with write_agent(paths, disk=root.services().disk) as writer:
        synced = writer.store("client.jsonl", "main", Source("c", path=client))
        assert synced is not None
        writer.append("transcript.synced", {"files": [synced.as_entry()]}, TIME)


def main() -> None:
    """Measure, and print."""
    gc.set_threshold(100_000)
    folder = Path(sys.argv[1])
    root = Root(folder / "root")
    noted = root.new()
    figures = {
        "event": least(lambda: append_events(noted), lambda: write_lines(folder / "lines")),
    }
    short, long = root.new(), root.long_agent(MANY_TURNS)
    root.turns(long, 1)
    root.turns(short, FEW_TURNS)
    figures["turn"] = least(lambda: root.turns(long, TURNS), lambda: root.turns(short, TURNS))
    few, many = root.waiting(FEW_WAIT), root.waiting(MANY_WAIT)
    figures["queue"] = least(lambda: root.queue(many), lambda: root.queue(few))
    client = folder / "client.jsonl"
    rows = MEGABYTES * 1_000_000 // len(ROW % 0)
    client.write_bytes(b"".join(ROW % number for number in range(rows)))
    paths = root.new()
    sync_more(root, paths, client)
    figures["sync"] = least(lambda: sync_more(root, paths, client), lambda: loads(client))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
