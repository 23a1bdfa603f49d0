"""What the tests with a real client ask for: its fake API, and desks to run it at.

A variable names the clients, the main one first, with `:` between them. Without it the tests are
skipped; `.ci/clients` installs the pinned versions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import Desk
from fake_api import FakeApi


def fixtures(
    variable: str, api_type: type[FakeApi[Any]], desk_type: type[Desk[Any]]
) -> tuple[Any, Any, Any, Any, Any]:
    """Return the fixtures below, in their order, for the clients that a variable names."""
    clients = [Path(one) for one in os.environ.get(variable, "").split(":") if one]

    @pytest.fixture
    def api() -> Iterator[FakeApi[Any]]:
        """Return a fake API that serves while a test runs."""
        if not clients:
            pytest.skip(f"{variable} names no client; see .ci/clients")
        with api_type() as serving:
            yield serving

    @pytest.fixture
    def desk_of(api: FakeApi[Any], tmp_path: Path) -> Iterator[Callable[..., Desk[Any]]]:
        """Return a function that makes a desk in a folder of its own; what runs there is ended."""
        made: list[Desk[Any]] = []

        def make(name: str = "desk", client: Path | None = None) -> Desk[Any]:
            made.append(desk_type(tmp_path / name, client or clients[0], api))
            return made[-1]

        yield make
        for desk in made:
            desk.sweep()

    @pytest.fixture
    def desk(desk_of: Callable[..., Desk[Any]]) -> Desk[Any]:
        """Return a desk with the main client."""
        return desk_of()

    @pytest.fixture(params=clients or [None], ids=_version)
    def any_desk(request: pytest.FixtureRequest, desk_of: Callable[..., Desk[Any]]) -> Desk[Any]:
        """Return a desk with each client in turn."""
        return desk_of(client=request.param)

    @pytest.fixture
    def last_desk(desk_of: Callable[..., Desk[Any]]) -> Desk[Any]:
        """Return a desk with the client that was named last: the oldest."""
        return desk_of("last", clients[-1])

    return api, desk_of, desk, any_desk, last_desk


def _version(client: Path | None) -> str:
    """Return the folder that a client was installed in, which its version names."""
    parts = client.parts if client else ("none",)
    return parts[parts.index("node_modules") - 1] if "node_modules" in parts else parts[-1]
