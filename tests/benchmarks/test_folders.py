"""Folders of many sessions: time as a ratio to decoding every line, memory of all processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.benchmark

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
ROWS = Path(__file__).with_name("claude_rows.py")
LOADS = """
import orjson, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.jsonl")):
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)
"""
FILES = 1000
MEGABYTES = 215
ROUNDS = 2
# Processes take a tenth more: what they give is written and read once, and counts go from one to
# the other.
BARS = {"1": 5.5, "2": 6.5}
# Wall time as times that of the loop, which one processor runs; one process takes 3.
WALL_BAR = 3.5
PEAK_MIB = 50
TOGETHER_MIB = 96
NATIVE_BAR = 0.9


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 1,000 sessions in twenty projects, 215 MB together."""
    folder = tmp_path_factory.mktemp("home") / "projects"
    command = [sys.executable, str(ROWS), str(folder), str(MEGABYTES), "7", str(FILES)]
    subprocess.run(command, check=True, timeout=120)
    return folder


def surroundings(home: Path) -> dict[str, str]:
    """Return the environment of a measured command."""
    return {"HOME": str(home), "PATH": os.environ["PATH"]}


def test_many_sessions_cost_little_more_than_decoding_them(bench: Any, sessions: Path) -> None:
    """In one process and in two; an ended session is not kept in memory."""
    names = {jobs: f"parse {FILES} files, {jobs} jobs" for jobs in BARS}
    commands = {
        name: [AGENTSDIR, "parse", "--jobs", jobs, str(sessions)] for jobs, name in names.items()
    }
    bars = {names[jobs]: bar for jobs, bar in BARS.items()}
    floor = [sys.executable, "-c", LOADS, str(sessions)]

    figures = bench.compare(
        floor, commands, bars, rounds=ROUNDS, cwd=sessions, env=surroundings(sessions.parent)
    )

    slow = {name: figure.ratio for name, figure in figures.items() if figure.ratio > bars[name]}
    assert slow == {}
    assert max(figure.peak for figure in figures.values()) <= PEAK_MIB


def test_two_processes_end_sooner_than_one(bench: Any, sessions: Path) -> None:
    """Wall time, which says something only where two processors are free."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this needs two processors")
    command = [AGENTSDIR, "parse", "--jobs", "2", str(sessions)]
    floor = [sys.executable, "-c", LOADS, str(sessions)]

    ratio = bench.wall(
        floor, (f"parse {FILES} files, 2 jobs", command), WALL_BAR, cwd=sessions,
        env=surroundings(sessions.parent),
    )  # fmt: skip

    if ratio is None:
        pytest.skip("the machine is busy with other work")
    assert ratio <= WALL_BAR


def test_all_processes_together_need_little_memory(bench: Any, sessions: Path) -> None:
    """A page that several of them share, as the program is shared, counts once."""
    command = [AGENTSDIR, "parse", "--jobs", "2", str(sessions)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env=surroundings(sessions.parent), cwd=sessions
    )
    peak = most = 0
    while process.poll() is None:
        below = _children(process.pid)
        most = max(most, len(below))
        peak = max(peak, sum(map(_share, [process.pid, *below])))
        time.sleep(0.005)
    assert process.returncode == 0
    bench.note(f"parse {FILES} files, 2 jobs", peak / 1024, TOGETHER_MIB, unit="MiB, all processes")
    assert most == 2
    assert 0 < peak / 1024 <= TOGETHER_MIB


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _share(pid: int) -> int:
    """Return the KiB of a process, of shared pages its share; 0 of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def test_a_list_of_sessions_costs_a_part_of_decoding_them(bench: Any, sessions: Path) -> None:
    """Its start included, which is a good part of it."""
    name = f"list --native ({FILES} of {MEGABYTES} MB)"
    floor = [sys.executable, "-c", LOADS, str(sessions)]
    commands = {name: [AGENTSDIR, "list", "--native", str(sessions)]}

    figure = bench.compare(
        floor, commands, {name: NATIVE_BAR}, rounds=ROUNDS, cwd=sessions,
        env=surroundings(sessions.parent),
    )[name]  # fmt: skip

    assert figure.ratio <= NATIVE_BAR
