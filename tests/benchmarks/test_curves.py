"""How commands grow: exponents at the small end of what curves.py measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Bench

pytestmark = pytest.mark.benchmark

CURVES = Path(__file__).with_name("curves.py")
MEMORY_FILES = Path("/dev/shm")  # where a sync costs nothing
ATTEMPTS = 4
# Of what a command takes more than its start. 1 is linear; measured are 0.8 to 1.1.
LINEAR = 1.3
# Of all that it takes. 0 is flat; a look at each of 2,000 agents gives 0.2.
FLAT = 0.15
# Other files here hold commands that are linear in a log to a multiple of decoding it.
SUBJECTS = {
    "agents": ((200, 2000), ("send NAME", "new"), ("validate",)),
    "turns": ((100, 1000), ("send", "tag"), ()),
    "transcripts": ((20, 100), (), ("parse FILE", "follow FILE")),
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_command_grows_as_is_promised(bench: Bench, tmp_path: Path, subject: str) -> None:
    """What looks at one agent or turn is flat, and what looks at all of them is linear."""
    (first, last), flat, linear = SUBJECTS[subject]
    bars = {**dict.fromkeys(flat, FLAT), **dict.fromkeys(linear, LINEAR)}
    above = MEMORY_FILES if os.access(MEMORY_FILES, os.W_OK) else tmp_path
    command = [
        sys.executable, str(CURVES), subject, "--json", "--in", str(above),
        "--from", str(first), "--to", str(last), "--only", *bars,
    ]  # fmt: skip
    best = dict.fromkeys(bars, float("inf"))
    for _ in range(ATTEMPTS):
        done = subprocess.run(
            command, env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
            capture_output=True, text=True, check=True, timeout=300,
        )  # fmt: skip
        for name, figures in json.loads(done.stdout).items():
            best[name] = min(best[name], figures["whole" if name in flat else "growth"])
        if all(best[name] <= bar for name, bar in bars.items()):
            break
    for name, bar in bars.items():
        bench.note(f"{name} ({subject})", best[name], bar, unit="")
    assert {name: one for name, one in best.items() if one > bars[name]} == {}
