"""What a `send` costs in `chat --jsonl`, where the program is started once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Bench

pytestmark = pytest.mark.benchmark

# Single measurements give 0.53 to 0.72.
BAR = 0.75
"""CPU of a `send` to echo, never synced, to that of an interpreter which does nothing."""
SENDS = 100
FLOORS = 20
ATTEMPTS = 5
COMMAND = [sys.executable, "-m", "agentsdir.cli.main"]


def spent(argv: list[str], env: dict[str, str], given: bytes = b"") -> tuple[float, bytes]:
    """Run a program; return its CPU seconds, those of its children included, and its output."""
    before = os.times()
    done = subprocess.run(argv, input=given, env=env, stdout=subprocess.PIPE, check=True)
    after = os.times()
    user, system = 2, 3  # of children
    return after[user] + after[system] - before[user] - before[system], done.stdout


def served(env: dict[str, str], sends: int) -> float:
    """Return the CPU seconds of a process that does so many sends."""
    lines = [
        json.dumps({"id": n, "verb": "send", "args": ["demo", f"prompt {n}"]}) for n in range(sends)
    ]
    cost, said = spent([*COMMAND, "chat", "--jsonl"], env, "\n".join(lines).encode())
    assert said.count(b'"exit":0}') == sends
    return cost


def test_a_send_costs_a_part_of_an_interpreters_start(bench: Bench, tmp_path: Path) -> None:
    """The start of the process left out; the best of up to five measurements."""
    shared = Path("/dev/shm")
    best = float("inf")
    for _ in range(ATTEMPTS):
        with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
            env = {**os.environ, "AGENTSDIR_ROOT": f"{folder}/root"}
            subprocess.run(
                [*COMMAND, "new", "--provider", "echo", "--name", "demo"],
                env=env,
                stdout=subprocess.DEVNULL,
                check=True,
            )
            Path(folder, "root", "settings.toml").write_text('durability = "never"\n')
            floor = sum(spent([sys.executable, "-c", "pass"], env)[0] for _ in range(FLOORS))
            few, many = served(env, 1), served(env, SENDS + 1)
            best = min(best, (many - few) / SENDS / (floor / FLOORS))
        if best <= BAR:
            break
    bench.note("send, chat --jsonl", best, BAR)
    assert best <= BAR
