"""The schemas as files: well formed, complete, and only ever refused for the reason meant."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from jsonschema import Draft202012Validator

from agentsdir.formats.blocks import BLOCKS, EVENT_TYPES
from agentsdir.formats.store.events import EVENTS
from agentsdir.schemas import catalogue, check
from agentsdir.schemas.violations import Violation

FOLDER = Path(__file__).parents[2] / "schemas" / "v1"
EXAMPLES: dict[str, dict[str, list[Any]]] = json.loads(
    Path(__file__).with_name("examples.json").read_text()
)
VALID = [(kind, value) for kind, both in EXAMPLES.items() for value in both["valid"]]
INVALID = [(kind, value) for kind, both in EXAMPLES.items() for value in both["invalid"]]

pytestmark = pytest.mark.feature("C-09")


def parts_of(schema: Any) -> list[dict[str, Any]]:
    """Return every object inside a schema, itself included."""
    if isinstance(schema, dict):
        return [schema, *(part for value in schema.values() for part in parts_of(value))]
    if isinstance(schema, list):
        return [part for value in schema for part in parts_of(value)]
    return []


def test_every_schema_is_a_valid_schema_of_2020_12() -> None:
    """Both libraries take it, its id is its place, and it explains itself."""
    for kind in catalogue.kinds():
        schema = catalogue.load(kind)
        Draft202012Validator.check_schema(schema)
        jsonschema_rs.meta.validate(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema", kind
        assert schema["$id"] == f"https://agentsdir.dev/schemas/v1/{kind}.schema.json"
        assert schema["title"], kind
        assert schema["description"].endswith("."), kind


def test_every_schema_avoids_what_validators_disagree_on() -> None:
    """Patterns end where the text ends, references stay here, and nothing unknown is forbidden."""
    for part in parts_of([catalogue.load(kind) for kind in catalogue.kinds()]):
        if isinstance(pattern := part.get("pattern"), str):
            assert pattern.startswith("^")
            assert pattern.endswith(r"$(?!\n)")
            assert r"\d" not in pattern
            assert r"\w" not in pattern
        if isinstance(reference := part.get("$ref"), str):
            assert reference.removesuffix(catalogue.SUFFIX) in catalogue.kinds()
        assert part.get("additionalProperties") is not False
        assert not {"oneOf", "anyOf", "not", "unevaluatedProperties"} & part.keys()
        assert part.get("format", "date-time") == "date-time" or "format" not in part.get(
            "required", ()
        )


def test_every_file_in_the_folder_is_a_kind() -> None:
    """The catalogue knows each file, and has no other."""
    assert {path.name for path in FOLDER.iterdir()} == {
        kind + catalogue.SUFFIX for kind in catalogue.kinds()
    }


@pytest.mark.parametrize(
    ("envelope", "field", "names"),
    [
        ("event", "event", EVENTS),
        ("block", "type", BLOCKS),
        ("stream-event", "type", EVENT_TYPES),
    ],
)
def test_every_name_the_program_knows_has_a_schema(
    envelope: str, field: str, names: tuple[str, ...]
) -> None:
    """Each event, block type and stream event has a file, and its envelope leads there."""
    branches = catalogue.load(envelope)["allOf"]

    assert [branch["if"]["properties"][field]["const"] for branch in branches] == list(names)
    for name in names:
        assert f"{envelope}-{re.sub(r'[._]', '-', name)}" in catalogue.kinds()


def test_every_kind_has_a_valid_and_an_invalid_example() -> None:
    """No schema goes untried."""
    assert set(EXAMPLES) == set(catalogue.kinds())
    assert all(both["valid"] and both["invalid"] for both in EXAMPLES.values())


def test_every_valid_example_is_accepted() -> None:
    """Also with an unknown field added to it."""
    for kind, value in VALID:
        assert check(kind, value) == [], (kind, value)
        if isinstance(value, dict):
            assert check(kind, {**value, "field-of-tomorrow": [1]}) == [], (kind, value)


def test_every_invalid_example_is_refused_with_a_reason() -> None:
    """There is a reason in words, at a place, with what stands there."""
    for kind, value in INVALID:
        violations = check(kind, value)
        assert violations, (kind, value)
        assert all(one.reason and len(one.value) <= 81 for one in violations), (kind, value)


@pytest.mark.parametrize(
    ("kind", "value", "violation"),
    [
        ("descriptor", {"type": "cron"}, Violation("", "lacks id", '{"type"}')),
        ("usage", [], Violation("", "must be object, not array", "[]")),
        (
            "block",
            EXAMPLES["block"]["invalid"][0],
            Violation("/status", '"done" is none of pending, running, success, error', '"done"'),
        ),
        (
            "script-line",
            {"type": "sleep", "seconds": -1},
            Violation("/seconds", "-1 is less than 0", "-1"),
        ),
        (
            "new-agent",
            {"type": "agent", "agentId": "a" * 24 + "\n"},
            Violation(
                "/agentId",
                f'"{"a" * 24}\\n" does not match ^[a-z0-9]{{24,32}}$',
                f'"{"a" * 24}\\n"',
            ),
        ),
        (
            "new-agent",
            {"type": "a", "agentId": "a" * 24},
            Violation("/type", 'must be "agent", not "a"', '"a"'),
        ),
        ("message-parts", [], Violation("", "must not be empty", "[]")),
    ],
)
def test_a_violation_speaks_of_the_right_branch(
    kind: str, value: Any, violation: Violation
) -> None:
    """The branch is the one that the discriminator names, and one thing is said, not six."""
    assert check(kind, value) == [violation]


def test_a_huge_value_is_named_in_few_words() -> None:
    """What is wrong with megabytes still fits on a line."""
    (violation,) = check("descriptor", {"type": "cron", "id": ["x" * 10_000_000]})

    assert violation == Violation("/id", "must be string, not array", "a list of 1")
    (violation,) = check("session-list", "x" * 1_000_000)
    assert len(violation.value) <= 81


def test_no_kind_is_made_up() -> None:
    """An unknown kind is the caller's mistake."""
    with pytest.raises(KeyError):
        check("no-such-kind", {})
