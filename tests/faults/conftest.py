"""Lets the fault tests import what they share, and skips what this machine cannot do.

Where REQUIRE_FAULTS is set (`.ci/run` does) such a skip is a failure: see tests/conftest.py.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


def require_programs(*names: str) -> None:
    """Skip the test on a machine other than Linux, or without one of these programs."""
    if sys.platform != "linux":
        pytest.skip("faults are injected on Linux only")
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"the program {name} is not installed")


@pytest.fixture(scope="session", name="require_programs")
def _require_programs() -> object:
    """Return the function, for tests that cannot import a conftest."""
    return require_programs


@pytest.fixture(scope="session")
def rig() -> Iterator[Any]:
    """Return the fault rig; it needs a compiler."""
    require_programs("gcc")
    from fault_rig import Rig

    # In memory where that goes: thousands of roots are copied, and none needs to be durable.
    memory = Path("/dev/shm")
    where = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="faults-", dir=where) as folder:
        rig = Rig(Path(folder).resolve())
        try:
            yield rig
        finally:
            rig.stop()
