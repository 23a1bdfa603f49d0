"""Shared by the tests of what happens while sessions run: a house to run them in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for what these tests share

from house import House


@pytest.fixture
def house(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    """Return a house with no agent in it; what runs there is ended."""
    made = House(memory_path)
    made.settle()
    monkeypatch.syspath_prepend(str(made.site))
    yield made
    made.sweep()
