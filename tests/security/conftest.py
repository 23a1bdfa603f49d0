"""Lets the security tests import what they share, and gives each an arena of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arena import Arena, Mould


@pytest.fixture(scope="session")
def mould(tmp_path_factory: pytest.TempPathFactory) -> Mould:
    """Return an agents directory to copy from: making one for each test takes longer."""
    return Mould(Arena.make(tmp_path_factory.mktemp("mould")))


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    """Return a home, a working directory and an outside that nothing may touch."""
    return Arena.make(tmp_path)
