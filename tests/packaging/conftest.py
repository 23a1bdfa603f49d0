"""The distributions, built once for all tests that look into them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
LEFTOVERS = shutil.ignore_patterns(
    ".git", ".venv", "*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist"
)


class Built(NamedTuple):
    """One sdist, the wheel made from it, and the wheel made from the checkout."""

    sdist: Path
    wheel: Path
    direct_wheel: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build a copy of the checkout without leftovers, which setuptools would pack up too.

    The backend is one of the test dependencies, so that no package index is asked.
    """
    work = tmp_path_factory.mktemp("distributions")
    shutil.copytree(ROOT, work / "checkout", ignore=LEFTOVERS, symlinks=True)
    build = [sys.executable, "-m", "build", "--no-isolation"]
    for options, folder in (((), "both"), (("--wheel",), "direct")):
        done = subprocess.run(
            [*build, *options, "--outdir", str(work / folder), str(work / "checkout")],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return Built(
        _only(work / "both", "*.tar.gz"),
        _only(work / "both", "*.whl"),
        _only(work / "direct", "*.whl"),
    )


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found
