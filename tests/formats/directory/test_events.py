"""`EVENTS` is the one table of events: schemas, fold, and what a closed agent's log may take."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agentsdir.formats.store.events import (
    BROKEN,
    EVENTS,
    AfterClose,
    apply,
    begin,
    breach_after_close,
)
from agentsdir.formats.store.log import NO_LINE, Record
from agentsdir.formats.store.state import AgentState, SessionState
from agentsdir.schemas import catalogue

EXAMPLES: dict[str, dict[str, list[Any]]] = json.loads(
    (Path(__file__).parents[2] / "schemas" / "examples.json").read_text()
)
TURN = "t" * 24
JSON_TYPES = {str: "string", int: "integer", dict: "object", list: "array"}
WRONG: dict[type, Any] = {str: 5, int: "1", dict: "text", list: "text"}
NEEDS = [(event, field) for event, row in EVENTS.items() for field in row.needs]


def schema_of(event: str) -> str:
    """Return the kind of an event's data: the rule by which its schema is named."""
    return f"event-{event.replace('.', '-')}"


def example(event: str) -> dict[str, Any]:
    """Return data that its schema takes, of the open turn if it names one."""
    data: dict[str, Any] = copy.deepcopy(EXAMPLES[schema_of(event)]["valid"][0])
    return {**data, "turn_id": TURN} if "turn_id" in data else data


def record(event: str, data: dict[str, Any]) -> Record:
    """Return a record of an event."""
    return Record(2, "2026-01-02T03:04:05Z", event, "0" * 32, data, NO_LINE)


def agent_with_open_turn() -> AgentState:
    """Return an agent amid a turn."""
    state = begin(record("session.created", example("session.created")))
    apply(state, record("turn.start", {**example("turn.start"), "turn_id": TURN}), 0)
    return state


def is_taken(event: str, data: dict[str, Any]) -> bool:
    """Tell whether the fold takes a record; one that it refuses must change nothing."""
    state = agent_with_open_turn()
    before = copy.deepcopy(state)
    try:
        if event == "session.created":
            begin(record(event, data))
        else:
            apply(state, record(event, data), 0)
    except BROKEN:
        assert state == before
        return False
    return True


def test_the_envelope_leads_from_each_event_to_the_schema_of_its_data() -> None:
    """event.schema.json is a released file; its branches are the rows of the table, in order."""
    branches = {
        branch["if"]["properties"]["event"]["const"]: branch["then"]["properties"]["data"]["$ref"]
        for branch in catalogue.load("event")["allOf"]
    }
    assert list(branches) == list(EVENTS)
    assert branches == {event: schema_of(event) + catalogue.SUFFIX for event in EVENTS}


@pytest.mark.parametrize("event", EVENTS)
def test_an_example_of_each_event_is_taken(event: str) -> None:
    """What its schema takes, the fold takes too."""
    assert is_taken(event, example(event))


@pytest.mark.parametrize(("event", "field"), NEEDS)
def test_a_record_without_a_field_that_its_event_needs_is_refused(event: str, field: str) -> None:
    """Missing, or of another type; and the schema demands that field, of that type."""
    kind = EVENTS[event].needs[field]
    schema = catalogue.load(schema_of(event))
    assert field in schema["required"]
    declared = schema["properties"][field]
    by_reference = "string" if "enum" in declared else "object"
    assert declared.get("type", by_reference) == JSON_TYPES[kind]

    data = example(event)
    del data[field]
    assert not is_taken(event, data)
    for wrong in (WRONG[kind], None, True):
        assert not is_taken(event, {**example(event), field: wrong})


@pytest.mark.parametrize("event", EVENTS)
def test_a_record_without_a_field_that_its_event_does_not_need_is_taken(event: str) -> None:
    """So `needs` lists all of them."""
    for field in example(event).keys() - EVENTS[event].needs.keys():
        data = example(event)
        del data[field]
        assert is_taken(event, data), field


def test_events_after_a_close_are_those_of_the_table() -> None:
    """Some always, some from the turn that was open until it ends, most never; unknown ones too."""
    for event in (*EVENTS, "event.of.tomorrow"):
        allowed = EVENTS[event].after_close if event in EVENTS else AfterClose.NEVER
        state = agent_with_open_turn()
        assert breach_after_close(state, event, {}) is None
        state.session.state = SessionState.TERMINATED
        of_turn, of_another = ({"turn_id": turn} for turn in (TURN, "o" * 24))
        assert (breach_after_close(state, event, of_turn) is None) == (
            allowed is not AfterClose.NEVER
        )
        assert (breach_after_close(state, event, of_another) is None) == (
            allowed is AfterClose.ALWAYS
        )
        state.open_turn = None
        assert (breach_after_close(state, event, of_turn) is None) == (allowed is AfterClose.ALWAYS)
