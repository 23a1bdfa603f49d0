"""A model that tests hold, and an app whose sessions have it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gates import GATED, Gate, gated

from agentsdir import App


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Return the model of the provider `gated`."""
    with gated() as found:
        yield found


@pytest.fixture
def app(tmp_path: Path, gate: Gate) -> Iterator[App]:
    """Return an app whose sessions have the model `gate`."""
    made = App(GATED, root=tmp_path)
    yield made
    gate.go()
    made.close(abort=True)
