"""Lets these tests import what they share, and builds the logs that are damaged on purpose."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.store.layout import Layout

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def golden_log(agents: Any, request: pytest.FixtureRequest, memory_path: Path) -> Any:
    """Return an agent whose log was written by the product: `whole`, `stub` or `tail`."""
    agents.layout = Layout(memory_path / "root")
    shape = request.param
    paths = agents.publish()
    if shape == "whole":
        agents.talk(paths)
        agents.append(paths, "history.reset", {"message": "naïve — 日本 𝄞\t“”"})
    else:
        agents.append(paths, "history.reset", {"message": "é𝄞"})
        with paths.log.open("ab") as log:
            log.write('{"seq":3,"ts":"2026-01-02T03:04:05.678900Z","event":"é'.encode()[:-1])
    if shape == "stub":
        agents.append(paths, "history.reset", {"message": "after the stub"})
        agents.append(paths, "hook.failed", {"hook": "x", "message": "y"})
    return paths
