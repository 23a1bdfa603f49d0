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
AGENT_ROOT = Path(__file__).with_name("agent_root.py")
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
LOG_BARS = {"validate (98 MB)": 17.0, "restore (98 MB)": 8.0}
PEAK_MIB = 60
FEWER = 2_000
VALIDATE_BAR = 75.0
RESTORE_BAR = 11.0


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Return a folder on a memory file system, where there is one."""
    with tempfile.TemporaryDirectory(
        dir=MEMORY_FILES if os.access(MEMORY_FILES, os.W_OK) else None
    ) as folder:
        yield Path(folder)


def surroundings(home: Path) -> dict[str, str]:
    """Return the environment of a measured command."""
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def test_a_long_log_is_checked_in_one_reading_and_not_held(bench: Any, in_memory: Path) -> None:
    """It is decoded once, and so is history.jsonl compared."""
    root = in_memory / "root"
    agent = _output(LONG_LOG, str(root), str(MEGABYTES))
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


def test_agents_left_in_order_are_restored_in_a_few_times_what_their_states_take(
    bench: Any, agents_root: Path
) -> None:
    """Of ten thousand, only stamps and states are read."""
    name = "restore (10,000)"
    figure = bench.compare(
        [sys.executable, "-c", STATES, str(agents_root / "agents")],
        {name: [AGENTSDIR, "--root", str(agents_root), "restore"]}, {name: RESTORE_BAR},
        rounds=3, cwd=agents_root, env=surroundings(agents_root),
    )[name]  # fmt: skip

    assert figure.ratio <= RESTORE_BAR


def test_many_agents_are_checked_in_some_times_what_their_states_take(
    bench: Any, in_memory: Path
) -> None:
    """Two thousand of one turn each, in order; all processes are counted."""
    root = in_memory / "root"
    _output(AGENT_ROOT, str(root), str(FEWER))
    name = f"validate ({FEWER})"

    figure = bench.compare(
        [sys.executable, "-c", STATES, str(root / "agents")],
        {name: [AGENTSDIR, "--root", str(root), "validate"]}, {name: VALIDATE_BAR},
        rounds=2, cwd=root, env=surroundings(root),
    )[name]  # fmt: skip

    assert figure.ratio <= VALIDATE_BAR


def _output(script: Path, *arguments: str) -> str:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=120
    ).stdout.strip()
