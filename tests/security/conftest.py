"""Lets the security tests import what they share, and gives each an arena of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arena import Arena, Mould, has_devices

MEMORY = Path("/dev/shm")


def _fast_place() -> Path | None:
    """Return a file system in memory, if it has what the tests put there; else none."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return None
    with tempfile.TemporaryDirectory(dir=MEMORY) as probe:
        return MEMORY if os.geteuid() != 0 or has_devices(Path(probe)) else None


@pytest.fixture(scope="session")
def memory() -> Path | None:
    """Return where thousands of small files are made fastest."""
    return _fast_place()


@pytest.fixture
def tmp_path(memory: Path | None) -> Iterator[Path]:
    """Return a folder that is gone after the test."""
    with tempfile.TemporaryDirectory(dir=memory, prefix="arena-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def mould(memory: Path | None) -> Iterator[Mould]:
    """Return an agents directory to copy from: making one for each test takes longer."""
    with tempfile.TemporaryDirectory(dir=memory, prefix="mould-") as folder:
        yield Mould(Arena.make(Path(folder)))


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """Return a home, a working directory and an outside that nothing may touch."""
    return Arena.make(tmp_path)
