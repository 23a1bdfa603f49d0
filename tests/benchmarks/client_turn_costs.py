"""Prints what turns of a client with a long transcript cost, as JSON: CPU seconds, and a loop's.

Usage: client_turn_costs.py FOLDER. Of Claude, the turn is rows that stand in the file at once; of
Gemini, the provider runs a program, whose time is not counted, and which restates the history.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from claude_rows import write
from gemini_client import GeminiAgent
from rows_client import NAME, ROWS, STORE, main_file
from turn_costs import ROUNDS, TIME, Root, least, loads, spent

from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import read_agent, write_agent

if TYPE_CHECKING:
    from agentsdir.formats.store.layout import AgentPaths

MEGABYTES = 100


def publish(site: Path) -> None:
    """Make the client an adapter that is installed."""
    info = site / f"{NAME}-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        f"[agentsdir.adapters]\n{NAME} = rows_client:ARCHITECTURE\n"
    )
    sys.path.insert(0, str(site))


def long_agent(root: Root) -> AgentPaths:
    """Make an agent whose client's transcript is long, and stored."""
    new = NewAgent(cwd="/", login="me", provider=NAME)
    paths = root.layout.agent(create_agent(root.services(), new))
    client = main_file(read_agent(paths).state.native["id"])
    client.parent.mkdir()
    write(client, MEGABYTES * 1_000_000, ROWS)
    with write_agent(paths, disk=root.services().disk) as writer:
        synced = writer.store(client.name, "main", Source("c", path=client))
        assert synced is not None
        writer.append("transcript.synced", {"files": [synced.as_entry()]}, TIME)
    return paths


def claude(root: Root) -> tuple[float, float]:
    """Return the least CPU seconds of a turn, and of a loop over the transcript."""
    paths = long_agent(root)
    prompt = [{"type": "text", "text": "go on"}]

    def turn() -> None:
        send(root.services(), paths, prompt, lambda _event: None)

    (client,) = STORE.iterdir()
    turn()  # it reads the whole transcript, as any first one
    return least(turn, lambda: loads(client))


def gemini(root: Root, folder: Path) -> tuple[float, float]:
    """Return the same of a client whose turns begin with the whole history."""
    agent = GeminiAgent(root, folder, MEGABYTES * 1_000_000)
    pairs = []
    for _ in range(ROUNDS):
        agent.write_next()
        pairs.append((spent(agent.turn), spent(lambda: loads(agent.chat))))
        assert agent.is_read
    return min(ours for ours, _ in pairs), min(floor for _, floor in pairs)


def main() -> None:
    """Measure, and print."""
    gc.set_threshold(100_000)
    folder = Path(sys.argv[1])
    publish(folder / "site")
    found = {"claude": claude(Root(folder / "root"))}
    for path in STORE.iterdir():
        path.unlink()
    found["gemini"] = gemini(Root(folder / "other-root"), folder / "gemini")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
