"""Commands among many agents, as ratios to floors that are measured in the same run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
AGENT_ROOT = Path(__file__).with_name("agent_root.py")


def test_the_agents_that_are_measured_are_in_order(tmp_path: Path) -> None:
    """`validate` finds nothing wrong in a directory that the generator made."""
    root = tmp_path / "root"
    subprocess.run([sys.executable, str(AGENT_ROOT), str(root), "30"], check=True, timeout=60)

    found = subprocess.run(
        [AGENTSDIR, "--root", str(root), "validate"], capture_output=True, text=True, check=False
    )

    assert (found.returncode, found.stdout) == (0, "")
    assert "agents 30" in found.stderr
