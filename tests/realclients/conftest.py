"""Shared by the tests with the real client: where it is, and a desk to run it at.

``AGENTSDIR_TEST_CLAUDE`` names the clients, the main one first, with `:` between them. Without it
these tests are skipped; `.ci/clients` installs the pinned versions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for what these tests share

from desk import Desk
from fake_api import FakeApi

CLIENTS = [Path(one) for one in os.environ.get("AGENTSDIR_TEST_CLAUDE", "").split(":") if one]
NO_CLIENT = "AGENTSDIR_TEST_CLAUDE names no client; see .ci/clients"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Return a fake API that serves while a test runs."""
    with FakeApi() as serving:
        yield serving


@pytest.fixture
def desk_of(api: FakeApi, tmp_path: Path) -> Iterator[Callable[..., Desk]]:
    """Return a function that makes a desk in a folder of its own; what runs there is ended."""
    made: list[Desk] = []

    def make(name: str = "desk", client: Path | None = None) -> Desk:
        if not CLIENTS:
            pytest.skip(NO_CLIENT)
        made.append(Desk(tmp_path / name, client or CLIENTS[0], api))
        return made[-1]

    yield make
    for desk in made:
        desk.sweep()


@pytest.fixture
def desk(desk_of: Callable[..., Desk]) -> Desk:
    """Return a desk with the main client."""
    return desk_of()


def _version(client: Path | None) -> str:
    """Return the folder that a client was installed in, which its version names."""
    parts = client.parts if client else ("none",)
    return parts[parts.index("node_modules") - 1] if "node_modules" in parts else parts[-1]


@pytest.fixture(params=CLIENTS or [None], ids=_version)
def any_desk(request: pytest.FixtureRequest, desk_of: Callable[..., Desk]) -> Desk:
    """Return a desk with each client in turn."""
    return desk_of(client=request.param)
