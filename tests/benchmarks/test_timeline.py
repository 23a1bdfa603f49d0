"""A long timeline is cheap to look at again: only what is new in the log is read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

COSTS = Path(__file__).with_name("timeline_costs.py")
# Times the CPU that decoding the log of 10,000 blocks takes.
BARS = {
    "first look": 12.0,
    "first look, limited": 12.0,
    "a block and a look": 0.2,
    "a block and a look, limited": 0.1,
}


def test_a_long_timeline_is_looked_at_again_for_little(tmp_path: Path) -> None:
    """At 10,000 blocks, with a limit of what is held and without."""
    done = subprocess.run(
        [sys.executable, str(COSTS), str(tmp_path / "root")],
        capture_output=True,
        check=True,
        text=True,
    )
    costs = json.loads(done.stdout)
    ratios = {name: round(costs[name] / costs["floor"], 3) for name in BARS}
    print(ratios)
    assert {name: ratio for name, ratio in ratios.items() if ratio > BARS[name]} == {}
