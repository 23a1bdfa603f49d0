"""A machine for the programs of `examples/`: an empty home, a provider that needs no model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a Python program in an empty home; return what it printed."""

    def program(*arguments: str, given: str = "", status: int = 0) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {"HOME": str(tmp_path), "PATH": path, "USER": "me", "AGENTSDIR_PROVIDER": "echo"}
        # Whatever a program warns of is an error of the example.
        done = subprocess.run(
            [sys.executable, "-W", "error", *arguments],
            cwd=tmp_path,
            env={**env, "PYTHONPATH": str(ROOT / "examples"), "PYTHONDONTWRITEBYTECODE": "1"},
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (status, ""), done.stdout + done.stderr
        return done.stdout

    return program
