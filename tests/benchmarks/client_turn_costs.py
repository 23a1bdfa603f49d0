"""Prints what turns of a client with a long transcript cost, as JSON: CPU seconds, and a loop's.

Usage: client_turn_costs.py FOLDER. The client itself takes no time: the rest is ours.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from claude_rows import write
from rows_client import NAME, ROWS, STORE, main_file
from turn_costs import TIME, Root, least, loads

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
    new = NewAgent(cwd="/w", login="me", provider=NAME)
    paths = root.layout.agent(create_agent(root.services(), new))
    client = main_file(read_agent(paths).state.native["id"])
    client.parent.mkdir()
    write(client, MEGABYTES * 1_000_000, ROWS)
    with write_agent(paths, disk=root.services().disk) as writer:
        synced = writer.store(client.name, "main", Source("c", path=client))
        assert synced is not None
        writer.append("transcript.synced", {"files": [synced.as_entry()]}, TIME)
    return paths


def main() -> None:
    """Measure, and print."""
    gc.set_threshold(100_000)
    publish(Path(sys.argv[1]) / "site")
    root = Root(Path(sys.argv[1]) / "root")
    paths = long_agent(root)
    prompt = [{"type": "text", "text": "go on"}]

    def turn() -> None:
        send(root.services(), paths, prompt, lambda _event: None)

    (client,) = STORE.iterdir()
    turn()  # it reads the whole transcript, as any first one
    print(json.dumps({"client": least(turn, lambda: loads(client))}))


if __name__ == "__main__":
    main()
