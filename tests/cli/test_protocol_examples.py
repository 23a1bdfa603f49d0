"""The examples of docs/protocol.md do what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
PROGRAMS = {"bash": ["bash", "-c"], "python": [sys.executable, "-c"]}


@pytest.mark.parametrize(
    ("language", "printed"), [("bash", "one\ntwo\nthree\n"), ("python", "Hello\n")]
)
def test_an_example_works(shell: Any, language: str, printed: str) -> None:
    """As it stands, where `agentsdir` is on the search path."""
    if language == "bash" and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    binaries = shell.cwd / "bin"
    binaries.mkdir()
    program = binaries / "agentsdir"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentsdir.cli.main "$@"\n')
    program.chmod(0o755)
    variables = shell.environment()
    variables["PATH"] = f"{binaries}:{variables['PATH']}"

    done = subprocess.run(
        [*PROGRAMS[language], code],
        env=variables,
        cwd=shell.cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, printed), done.stderr
