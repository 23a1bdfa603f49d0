"""What every test of the repository shares: a home of its own, and no silent skips in CI.

Property tests try the same examples every time: one that fails now and then does not say why.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # for what several folders share

settings.register_profile(
    "agentsdir", deadline=None, derandomize=True, database=None, max_examples=100
)
settings.load_profile("agentsdir")

# A shell starts a background job, such as a test run, with SIGINT ignored, and so all its children.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FORBID_SKIPS = bool(os.environ.get("AGENTSDIR_FORBID_SKIPS"))
"""Set by `.ci/run`: there, whatever a test needs is installed, so a skip is a failure."""
REQUIRE_FAULTS = bool(os.environ.get("REQUIRE_FAULTS"))
"""The same for the tests below tests/faults alone, which need Linux, root and some programs."""


@pytest.fixture(scope="session")
def scratch_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home directory that no user has."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _own_surroundings(scratch_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from the agents and settings of the user who runs them."""
    monkeypatch.setenv("HOME", str(scratch_home))
    monkeypatch.delenv("AGENTSDIR_ROOT", raising=False)
    # What a test makes without a provider does not depend on the clients that are installed.
    monkeypatch.setenv("AGENTSDIR_PROVIDER", "echo")


@pytest.fixture(autouse=True)
def _own_waits() -> None:
    """Count the waits of each test by themselves, as those of each command are."""
    from agentsdir.formats.store import locks

    locks.count_on(locks.Waits())


@pytest.fixture(autouse=True)
def _own_providers() -> Iterator[None]:
    """Leave no provider registered that a test made: names are the process's."""
    from agentsdir.adapters import registry

    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory, where the system has one: for tests that write thousands of files.

    Their time would else be the disk's, which they are not about.
    """
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="agentsdir-", dir=memory) as folder:
        yield Path(folder)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    fault = REQUIRE_FAULTS and report.nodeid.startswith("tests/faults/")
    if FORBID_SKIPS or fault:
        variable = "REQUIRE_FAULTS" if fault else "AGENTSDIR_FORBID_SKIPS"
        report.longrepr = f"{variable} is set, and this was skipped: {_reason(report)}"
        report.outcome = "failed"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> object:
    """Turn a skipped test into a failed one where skips are forbidden."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> object:
    """Do the same for a module that skips itself."""
    report = yield
    _refuse_skip(report)
    return report
