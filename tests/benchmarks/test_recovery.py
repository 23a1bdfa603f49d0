"""`restore` and `validate`, as ratios to floors that are measured in the same run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.benchmark

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
LONG_LOG = Path(__file__).with_name("long_log.py")
MEMORY_FILES = Path("/dev/shm")
LOADS = "import orjson, sys\nfor line in open(sys.argv[1], 'rb'):\n    orjson.loads(line)"
STATES = """
import os, sys
from orjson import loads
for entry in os.scandir(sys.argv[1]):
    with open(entry.path + "/state.json", "rb") as file:
        loads(file.read())
"""
MEGABYTES = 98
LOG_BARS = {"validate (98 MB)": 13.0, "restore (98 MB)": 7.0}
PEAK_MIB = 60
AGENTS_BARS = {"validate (10,000)": 70.0, "restore (10,000)": 9.0}


@pytest.fixture
def long_agent() -> Iterator[tuple[Path, str]]:
    """Return a root and its agent with a long log."""
    with tempfile.TemporaryDirectory(
        dir=MEMORY_FILES if os.access(MEMORY_FILES, os.W_OK) else None
    ) as folder:
        root = Path(folder) / "root"
        command = [sys.executable, str(LONG_LOG), str(root), str(MEGABYTES)]
        made = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        yield root, made.stdout.strip()


def surroundings(home: Path) -> dict[str, str]:
    """Return the environment of a measured command."""
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def test_a_long_log_is_checked_in_one_reading_and_not_held(
    bench: Any, long_agent: tuple[Path, str]
) -> None:
    """It is decoded once, and so is history.jsonl compared."""
    root, agent = long_agent
    folder = root / "agents" / agent
    commands = {
        "validate (98 MB)": [AGENTSDIR, "validate", str(folder)],
        "restore (98 MB)": [AGENTSDIR, "--root", str(root), "restore", agent],
    }
    floor = [sys.executable, "-c", LOADS, str(folder / "events.jsonl")]

    figures = bench.compare(
        floor, commands, LOG_BARS, rounds=2, cwd=root, env=surroundings(root.parent)
    )

    assert {name: fig.ratio for name, fig in figures.items() if fig.ratio > LOG_BARS[name]} == {}
    assert {name: fig.peak for name, fig in figures.items() if fig.peak > PEAK_MIB} == {}


def test_many_agents_are_checked_in_a_few_times_what_their_states_take(
    bench: Any, agents_root: Path
) -> None:
    """Ten thousand of one turn each, in order; all processes are counted."""
    on_root = [AGENTSDIR, "--root", str(agents_root)]
    commands = {
        "validate (10,000)": [*on_root, "validate"],
        "restore (10,000)": [*on_root, "restore"],
    }
    # Copies have no stamps; the first restoration reads all, and leaves them.
    subprocess.run([*on_root, "restore"], check=True, stdout=subprocess.DEVNULL, timeout=300)
    floor = [sys.executable, "-c", STATES, str(agents_root / "agents")]

    figures = bench.compare(
        floor, commands, AGENTS_BARS, rounds=1, cwd=agents_root, env=surroundings(agents_root)
    )

    slow = {name: fig.ratio for name, fig in figures.items() if fig.ratio > AGENTS_BARS[name]}
    assert slow == {}
