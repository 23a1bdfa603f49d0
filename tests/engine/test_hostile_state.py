"""state.json is only ever a short cut: damage to it costs nothing and reaches no log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentsdir.formats.store.agent import read_agent

DAMAGE: dict[str, dict[str, Any]] = {
    "another number": {"lastSeq": 99},
    "another hash": {"lastHash": "0123456789abcdef"},
    "no hash": {"lastHash": "zz"},
    "an earlier place": {"logSize": 100},
    "a place beyond any file": {"logSize": 2**63},
    "no place": {"logSize": -1},
}


@pytest.mark.feature("S-04")
@pytest.mark.parametrize("change", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_position_is_noticed_and_the_log_folded_instead(
    stage: Any, change: dict[str, Any]
) -> None:
    """The next record has the right number and names the right line."""
    paths = stage.new()
    stage.send(paths)
    document = json.loads(paths.state.read_bytes())
    paths.state.write_text(json.dumps({**document, **change}))
    assert stage.send(paths, "again").response == "again"
    assert read_agent(paths, whole=True).findings == ()
