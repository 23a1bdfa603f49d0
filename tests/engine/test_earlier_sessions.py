"""Files of earlier native sessions, and recorded streams: state.json lists none of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agentsdir.engine.close import reset
from agentsdir.engine.lookup import inspection
from agentsdir.engine.restore import restore_agent
from agentsdir.formats import ids
from agentsdir.formats.store.agent import all_synced, load_sound, read_agent, wrong_files
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.log import append_record


def listed(paths: Any) -> list[str]:
    """Return the transcripts that state.json lists."""
    return list(orjson.loads(paths.state.read_bytes())["transcripts"])


def in_manifest(paths: Any) -> list[str]:
    """Return those that manifest.json lists."""
    return [entry["path"] for entry in orjson.loads(paths.manifest.read_bytes())["files"]]


def assert_sound(stage: Any, paths: Any) -> None:
    """Check that all derived files are what the whole log says, and `restore` has no work."""
    assert wrong_files(paths, stage.state(paths)) == []
    assert read_agent(paths).state == stage.state(paths)


@pytest.fixture
def after_reset(stage: Any) -> Any:
    """Return an agent that was reset after two turns, one of them recorded."""
    paths = stage.new()
    stage.send(paths, "one", record=True)
    stage.send(paths, "two")
    reset(stage.services, paths)
    return paths


def test_state_json_lists_the_files_of_the_present_session_alone(
    stage: Any, after_reset: Any
) -> None:
    """And no recorded stream, however many turns were recorded; manifest.json has all of them."""
    paths = after_reset
    assert listed(paths) == []
    stage.send(paths, "three", record=True)
    native = stage.state(paths).native["id"]
    assert listed(paths) == [f"{native}.jsonl"]
    assert len(in_manifest(paths)) == 4
    assert_sound(stage, paths)


def test_inspect_shows_all_of_them(stage: Any, after_reset: Any) -> None:
    """As before: they are still the agent's."""
    stage.send(after_reset, "three")
    shown = inspection(after_reset, read_agent(after_reset))["transcripts"]
    assert sorted(shown) == in_manifest(after_reset)


def test_no_provider_is_handed_a_file_of_an_earlier_session(stage: Any, after_reset: Any) -> None:
    """Nor is it taken for one that a crash left unsynced."""
    assert load_sound(after_reset, read_agent(after_reset).state) == {}
    stage.send(after_reset, "three")
    native = stage.state(after_reset).native["id"]
    assert list(load_sound(after_reset, read_agent(after_reset).state)) == [f"{native}.jsonl"]


MANIFESTS: dict[str, Any] = {
    "missing": None,
    "empty": lambda _data: b"",
    "half": lambda data: data[: len(data) // 2],
    "no object": lambda _data: b"[]",
    "no files": lambda _data: b"{}",
    "files of texts": lambda _data: b'{"files": ["a"]}',
    "an entry without a digest": lambda data: data.replace(b'"sha256"', b'"sha255"'),
    "a size of text": lambda data: data.replace(b'"size": ', b'"size": "" , "was": '),
    "of another agent": lambda _data: b'{"files": []}',
}


@pytest.mark.parametrize("how", MANIFESTS)
def test_a_damaged_manifest_costs_a_reading_of_the_log(stage: Any, how: str) -> None:
    """What the next turn writes has the entries of all sessions."""
    paths = stage.new()
    stage.send(paths, "one", record=True)
    reset(stage.services, paths)
    stage.send(paths, "two")
    data = paths.manifest.read_bytes()
    if MANIFESTS[how] is None:
        paths.manifest.unlink()
    else:
        paths.manifest.write_bytes(MANIFESTS[how](data))
    state = read_agent(paths).state
    assert sorted(all_synced(paths, state)) == sorted(stage.state(paths).synced)
    stage.send(paths, "three")
    assert len(in_manifest(paths)) == 3
    assert_sound(stage, paths)


def test_no_state_json_is_ahead_of_manifest_json(stage: Any, after_reset: Any) -> None:
    """A writer that died after its record left manifest.json to the next one."""
    paths = after_reset
    state = read_agent(paths).state
    entry = {"path": "late.jsonl", "role": "main", "size": 0, "sha256": "0" * 64}
    data = {"files": [entry]}
    append_record(
        paths.log,
        state.position,
        "transcript.synced",
        data,
        stage.now(),
        state.session.id,
        Disk(),
    )
    assert "late.jsonl" not in in_manifest(paths)
    stage.append(paths, "agent.tagged", {"tags": ["x"]})
    assert "late.jsonl" in in_manifest(paths)
    assert listed(paths) == ["late.jsonl"]
    assert_sound(stage, paths)
    assert restore_agent(stage.services, paths, dry_run=True).actions == ("suspended",)


def test_the_files_of_a_session_that_a_stand_in_leaves_are_kept_for_its_return(
    stage: Any,
) -> None:
    """Until the next turn begins; also where another process reads state.json in between."""
    paths = stage.new()
    stage.send(paths, "one")
    own = stage.state(paths).native
    other = {**own, "architecture": "script", "id": ids.dashed("5" * 32)}
    stage.append(paths, "native.changed", {"native": other, "reason": "fallback"})
    assert listed(paths) == [f"{own['id']}.jsonl"]
    entry = {"path": "other.jsonl", "role": "main", "size": 0, "sha256": "0" * 64}
    stage.append(paths, "transcript.synced", {"files": [entry]})
    stage.append(paths, "native.changed", {"native": own, "reason": "fallback"})
    assert listed(paths) == [f"{own['id']}.jsonl", "other.jsonl"]
    stage.send(paths, "two")
    assert listed(paths) == [f"{own['id']}.jsonl"]
    assert_sound(stage, paths)
