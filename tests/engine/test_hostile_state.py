"""state.json is only ever a short cut: damage to it costs nothing and reaches no log."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from agentsdir.engine.lookup import ListedAgent, document_row, each_agent, list_row
from agentsdir.formats.ids import short_hash
from agentsdir.formats.store.agent import current_document, read_agent

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


RESEALED: dict[str, dict[str, Any]] = {
    **DAMAGE,
    "a name that is none": {"name": ["fox"]},
    "no object": {"descriptor": None},
    "a counter below zero": {"counters": {"turns": -1}},
    "an inbox that cannot be counted": {"pending": 3},
    "a state that no session has": {"state": "asleep"},
    "a flag that is a number": {"ephemeral": 0},
}


@pytest.mark.parametrize("change", RESEALED.values(), ids=RESEALED)
def test_a_list_believes_no_state_that_the_log_or_the_format_contradicts(
    stage: Any, change: dict[str, Any]
) -> None:
    """Whatever its digest says: the log is folded, and the row is what that says."""
    paths = stage.new(name="fox")
    stage.send(paths)
    truth = list_row(paths, stage.state(paths))
    document = {**json.loads(paths.state.read_bytes()), **change}
    del document["digest"]
    said = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    document["digest"] = short_hash(said)
    paths.state.write_bytes(
        orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )

    assert current_document(paths) is None
    assert [list_row_of(one) for one in each_agent(stage.services.layout)] == [truth]


def test_a_list_reads_what_was_appended_since(stage: Any) -> None:
    """A state.json that is behind its log, or damaged, or missing, is not what is shown."""
    paths = stage.new(name="fox")
    stage.send(paths)
    sound = paths.state.read_bytes()
    assert current_document(paths) == json.loads(sound)
    stage.append(paths, "agent.renamed", {"name": "dog"})
    for stale in (sound, sound.replace(b"fox", b"cat"), b"", b"[]", sound[:-20]):
        paths.state.write_bytes(stale)
        assert [list_row_of(one)["name"] for one in each_agent(stage.services.layout)] == ["dog"]
    paths.state.unlink()
    assert [list_row_of(one)["name"] for one in each_agent(stage.services.layout)] == ["dog"]


def list_row_of(listed: ListedAgent) -> dict[str, Any]:
    """Return the row that a list shows of a readable agent."""
    assert listed.document is not None
    assert listed.findings == ()
    return document_row(listed.paths, listed.document)
