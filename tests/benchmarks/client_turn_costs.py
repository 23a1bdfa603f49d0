"""Prints what turns of a client with a long transcript cost, as JSON: CPU seconds, and a loop's.

Usage: client_turn_costs.py FOLDER. The client itself takes no time: the rest is ours.
"""

from __future__ import annotations

import gc
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import claude_rows
import gemini_rows
from rows_client import CLAUDE_ROWS, GEMINI_ROWS, main_file
from turn_costs import TIME, Root, least, loads

from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.formats.source import Source
from agentsdir.formats.store.agent import read_agent, write_agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.store.layout import AgentPaths

MEGABYTES = 100


def publish(site: Path) -> None:
    """Make the clients adapters that are installed."""
    info = site / "rows_clients-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rows-clients\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[agentsdir.adapters]\nrows-claude = rows_client:CLAUDE\nrows-gemini = rows_client:GEMINI\n"
    )
    sys.path.insert(0, str(site))


def long_agent(root: Root, provider: str, write: Callable[[Path, int], None]) -> AgentPaths:
    """Make an agent whose client's transcript is long, and stored."""
    new = NewAgent(cwd="/w", login="me", provider=provider)
    paths = root.layout.agent(create_agent(root.services(), new))
    client = main_file(read_agent(paths).state.native["id"])
    client.parent.mkdir(exist_ok=True)
    write(client, MEGABYTES * 1_000_000)
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
    prompt = [{"type": "text", "text": "go on"}]
    found = {}
    for name, write in (
        ("claude", lambda path, size: claude_rows.write(path, size, CLAUDE_ROWS)),
        ("gemini", lambda path, size: gemini_rows.write_turns(path, size, GEMINI_ROWS)),
    ):
        paths = long_agent(root, f"rows-{name}", write)
        client = main_file(read_agent(paths).state.native["id"])
        turn = partial(send, root.services(), paths, prompt, lambda _event: None)
        turn()  # it reads the whole transcript, as any first one
        found[name] = least(turn, partial(loads, client))
        client.unlink()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
