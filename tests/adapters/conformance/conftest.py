"""Every test here runs once with each client; it asks for `client`, or for cases of one."""

from pathlib import Path

import pytest
from claude_client import Claude
from clients import Client
from gemini_client import Gemini

CLIENTS: tuple[type[Client], ...] = (Claude, Gemini)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with each client, and with each case of the table that it names.

    `@pytest.mark.cases("titles")` names a table of `Client`; the test takes its value as `case`.
    """
    if "client" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("cases")
    if mark is None:
        metafunc.parametrize("client", CLIENTS, ids=lambda kind: kind.__name__, indirect=True)
        return
    rows = [
        pytest.param(kind, case, id=f"{kind.__name__}-{name}")
        for kind in CLIENTS
        for name, case in named(getattr(kind, mark.args[0])).items()
    ]
    metafunc.parametrize(("client", "case"), rows, indirect=["client"])


def named(table: object) -> dict[str, object]:
    """Return a table of cases, each by a name."""
    if isinstance(table, dict):
        return table
    assert isinstance(table, list | tuple)
    return {getattr(case, "name", repr(case)): case for case in table}


@pytest.fixture
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Client:
    """Return a client on a machine on which the client has not run yet."""
    made: Client = request.param(tmp_path)
    return made
