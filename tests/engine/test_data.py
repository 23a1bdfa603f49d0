"""Props and data that a program keeps with an agent."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agentsdir.engine.data import MAX_DATA, set_data, set_props
from agentsdir.engine.restore import restore_agent
from agentsdir.formats.errors import Invalid, SessionStateError, UsageError
from agentsdir.formats.store import events
from agentsdir.formats.store.events import EVENTS


def test_values_are_set_and_removed_by_name(stage: Any) -> None:
    """Each call is one record, and the state has what is left."""
    paths = stage.new()
    set_data(stage.services, paths, "com", {"step": 1, "draft": "x"})
    set_data(stage.services, paths, "data", {"page": {"rows": [1, 2]}})
    state = set_data(stage.services, paths, "com", {"draft": None})
    assert (state.com_state, state.data_cache) == ({"step": 1}, {"page": {"rows": [1, 2]}})
    assert stage.state(paths).com_state == {"step": 1}
    assert stage.log(paths)[-1]["data"] == {"scope": "com", "values": {"draft": None}}


def test_props_are_set_whole(stage: Any) -> None:
    """Those that are not given any more are gone."""
    paths = stage.new()
    set_props(stage.services, paths, {"query": "a", "depth": 1})
    assert set_props(stage.services, paths, {"query": "b"}).props == {"query": "b"}
    assert stage.state(paths).props == {"query": "b"}


def test_nothing_is_recorded_where_nothing_changes(stage: Any) -> None:
    """1 and true are two values."""
    paths = stage.new()
    set_data(stage.services, paths, "com", {"step": 1})
    set_props(stage.services, paths, {"step": 1})
    before = paths.log.read_bytes()
    set_data(stage.services, paths, "com", {"step": 1})
    set_data(stage.services, paths, "com", {"other": None})
    set_data(stage.services, paths, "com", {})
    set_props(stage.services, paths, {"step": 1})
    assert paths.log.read_bytes() == before
    set_data(stage.services, paths, "com", {"step": True})
    assert stage.state(paths).com_state["step"] is True


def test_the_state_does_not_follow_the_objects_of_the_caller(stage: Any) -> None:
    """What is changed after a call is not recorded, and is not there."""
    paths = stage.new()
    rows = [1]
    with stage.services.disk.synced_at_end():
        state = set_data(stage.services, paths, "com", {"rows": rows})
        rows.append(2)
        assert state.com_state == {"rows": [1]}


@pytest.mark.parametrize(
    "value", [{1, 2}, float("nan"), 2**60, "\ud800", {1: "a"}, (1, 2), object(), b"bytes"]
)
def test_what_is_no_json_is_refused(stage: Any, value: Any) -> None:
    """And nothing is recorded."""
    paths = stage.new()
    before = paths.log.read_bytes()
    for change in (
        lambda: set_data(stage.services, paths, "data", {"value": value}),
        lambda: set_props(stage.services, paths, {"value": value}),
    ):
        with pytest.raises(Invalid) as raised:
            change()
        assert raised.value.kind == "value-refused"
    assert paths.log.read_bytes() == before


def test_too_much_is_refused_and_what_is_there_stays(stage: Any) -> None:
    """The limit is of all values of a scope together; each scope has its own."""
    paths = stage.new()
    half = "x" * (MAX_DATA // 2)
    set_data(stage.services, paths, "com", {"a": half})
    with pytest.raises(Invalid) as raised:
        set_data(stage.services, paths, "com", {"b": half})
    assert raised.value.kind == "too-large"
    set_data(stage.services, paths, "data", {"b": half})
    set_props(stage.services, paths, {"b": half})
    set_data(stage.services, paths, "com", {"a": None, "b": half})
    assert stage.state(paths).com_state == {"b": half}
    exact = "x" * (MAX_DATA - len('{"b":""}'))
    set_data(stage.services, paths, "com", {"b": exact})
    with pytest.raises(Invalid):
        set_data(stage.services, paths, "com", {"b": exact + "x"})


def test_another_scope_is_refused(stage: Any) -> None:
    """There are two."""
    paths = stage.new()
    with pytest.raises(UsageError):
        set_data(stage.services, paths, "props", {"a": 1})


def test_a_closed_agent_takes_none(stage: Any) -> None:
    """Not even what it has already."""
    paths = stage.new()
    set_data(stage.services, paths, "com", {"step": 1})
    stage.append(paths, "session.state", {"from": "created", "to": "terminated", "reason": "close"})
    before = paths.log.read_bytes()
    for change in (
        lambda: set_data(stage.services, paths, "com", {"step": 1}),
        lambda: set_props(stage.services, paths, {}),
    ):
        with pytest.raises(SessionStateError) as raised:
            change()
        assert raised.value.kind == "closed"
    assert paths.log.read_bytes() == before


LATER = ("props.set", "data.set", "timeline.set", "runner.initialized", "runner.restored")


@pytest.mark.parametrize("event", LATER)
def test_a_program_that_does_not_know_the_records_keeps_them_and_restore_puts_them_back(
    stage: Any, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """Its state.json lacks what they say, until the log is folded whole."""
    paths = stage.new()
    data: dict[str, Any] = {
        "props.set": {"props": {"a": 1}},
        "data.set": {"scope": "com", "values": {"a": 1}},
        "timeline.set": {"entries": []},
    }.get(event, {"name": "repl"})
    stage.append(paths, event, data)
    expected = paths.state.read_bytes()
    older = {name: row for name, row in EVENTS.items() if name not in LATER}
    with monkeypatch.context() as patched:
        patched.setattr(events, "EVENTS", older)
        stage.append(paths, "agent.tagged", {"tags": []})
        paths.state.unlink()  # it folds the log from its start
        stage.append(paths, "agent.tagged", {"tags": ["x"]})
    assert [record["event"] for record in stage.log(paths)].count(event) == 1
    said = {"props", "comState", "dataCache", "runner"}
    assert not said & orjson.loads(paths.state.read_bytes()).keys()
    restore_agent(stage.services, paths)
    kept = orjson.loads(paths.state.read_bytes())
    assert said & kept.keys() == said & orjson.loads(expected).keys()
