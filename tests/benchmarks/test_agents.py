"""Commands among many agents, as ratios to floors that are measured in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.benchmark

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
AGENT_ROOT = Path(__file__).with_name("agent_root.py")
LOADS_STATES = """
import orjson, os, sys
for entry in os.scandir(sys.argv[1] + "/agents"):
    with open(entry.path + "/state.json", "rb") as file:
        orjson.loads(file.read())
"""
AT_TERMINAL = Path(__file__).with_name("at_terminal.py")
# Single measurements give 2.9 to 3.7, at a terminal 4.2 to 5.9.
LIST_BAR = 5.0
TABLE_BAR = 9.0
LIST_PEAK_MIB = 40
FIND_BAR = 1.8
FIND_RUNS = 5


def surroundings(home: Path) -> dict[str, str]:
    """Return the environment of a measured command."""
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def test_the_agents_that_are_measured_are_in_order(tmp_path: Path) -> None:
    """`validate` finds nothing wrong in a directory that the generator made."""
    root = tmp_path / "root"
    subprocess.run([sys.executable, str(AGENT_ROOT), str(root), "30"], check=True, timeout=60)

    found = subprocess.run(
        [AGENTSDIR, "--root", str(root), "validate"], capture_output=True, text=True, check=False
    )

    assert (found.returncode, found.stdout) == (0, "")
    assert "agents 30" in found.stderr


def test_a_list_of_agents_costs_little_more_than_reading_their_states(
    bench: Any, agents_root: Path, tmp_path: Path
) -> None:
    """10,000 agents are listed in a few times what decoding each state.json takes.

    They are sorted, and at a terminal measured for the columns, without that all are held.
    """
    floor = [sys.executable, "-c", LOADS_STATES, str(agents_root)]
    on_root = [AGENTSDIR, "--root", str(agents_root)]
    table = "list at a terminal"
    commands = {
        "list (10,000)": [*on_root, "list"],
        table: [sys.executable, str(AT_TERMINAL), *on_root, "list", "--color", "never"],
        "resolve (10,000)": [*on_root, "resolve", "most-recent-foreground"],
        "outbox (10,000)": [*on_root, "outbox"],
    }
    bars = {**dict.fromkeys(commands, LIST_BAR), table: TABLE_BAR}

    figures = bench.compare(
        floor, commands, bars, rounds=3, cwd=tmp_path, env=surroundings(tmp_path)
    )

    assert {name: fig.ratio for name, fig in figures.items() if fig.ratio > bars[name]} == {}
    assert max(figure.peak for figure in figures.values()) < LIST_PEAK_MIB


def test_an_agent_among_many_is_found_as_fast_by_its_name_as_by_its_id(
    bench: Any, agents_root: Path, tmp_path: Path
) -> None:
    """Nor does a session id or a prefix among 10,000 agents cost a look at each of them."""
    agent_id = sorted(path.name for path in (agents_root / "agents").iterdir())[5000]
    state = json.loads((agents_root / "agents" / agent_id / "state.json").read_bytes())
    references = {
        "by name (10,000)": state["name"],
        "by prefix (10,000)": agent_id[:9],
        "by session (10,000)": state["sessionId"],
        "by its prefix (10,000)": state["sessionId"][:9],
    }
    inspect = [AGENTSDIR, "--root", str(agents_root), "inspect"]
    bars = dict.fromkeys(references, FIND_BAR)

    figures = bench.compare(
        [*inspect, agent_id], {name: [*inspect, said] for name, said in references.items()}, bars,
        rounds=FIND_RUNS, cwd=tmp_path, env=surroundings(tmp_path),
    )  # fmt: skip

    assert {name: fig.ratio for name, fig in figures.items() if fig.ratio > FIND_BAR} == {}
