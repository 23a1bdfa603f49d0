"""Runs one command line in a new process, under a program that reports about it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def probed(program: str, arguments: list[str], home: Path) -> tuple[str, Any]:
    """Return what the command printed, and the program's report: JSON, the last line of stderr."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=home,
        env={"HOME": str(home), "USER": "me"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stderr.splitlines()[-1])
