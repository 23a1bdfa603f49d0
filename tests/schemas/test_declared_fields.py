"""Fields that no schema declares are found, and nothing that we write has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from declared_fields import undeclared, undeclared_in

from agentsdir.engine.validate.findings import kind_of_document, kind_of_line
from agentsdir.formats.store.events import EVENTS
from agentsdir.schemas import check

pytestmark = pytest.mark.feature("C-09")

FIXTURES = Path(__file__).parents[2] / "fixtures"
EXAMPLES: dict[str, dict[str, list[Any]]] = json.loads(
    Path(__file__).with_name("examples.json").read_text()
)
NEWER = {"descriptor.since", "event.extra", "session-snapshot.runner"}
"""Fields of a newer version, which examples have to show that they are let pass."""
PRINTED = [
    "abort-cleared", "adapter", "agent-settings", "archived", "closed", "derived", "error",
    "finding", "inspection", "interrupted", "native-session", "new-agent", "outbox-entry",
    "parse-report", "permission", "problem",
    "removed", "restored", "session-list", "session-runtime", "session-saved",
    "session-snapshot", "setting", "spawned",
    "trusted", "turn-result", "usage",
]  # fmt: skip
"""Kinds of what commands print."""
BLOCK = EXAMPLES["block"]["valid"][0]
COST = {"type": "metadata_update", "conversationId": "main", "metadata": {"costUSD": 0.5}}
PLANTED = [
    ("block", {**BLOCK, "contents": "x"}, ["block.contents"]),
    ("stream-event", {**COST, "metadata": {"costUsD": 0.5}}, ["stream-event.metadata.costUsD"]),
    ("stream-event", COST, []),
    ("stream-event", {**COST, "metadata": {"costUSD": -1}}, None),
    ("stream-event", {**COST, "metadata": {"costUsd": "much"}}, None),
    ("usage", {**EXAMPLES["usage"]["valid"][0], "tokens": 1}, ["usage.tokens"]),
]


@pytest.mark.parametrize(("kind", "value", "found"), PLANTED)
def test_a_field_that_no_schema_declares_is_found(
    kind: str, value: Any, found: list[str] | None
) -> None:
    """Where it stands; and what breaks a schema is reported as by `check`."""
    if found is None:
        assert undeclared(kind, value) != []
        assert check(kind, value) != []
    else:
        assert undeclared(kind, value) == found


def test_an_undeclared_field_is_found_however_deep() -> None:
    """In lists, behind references, and in what a condition adds."""
    wrapped = {"turn_id": None, "block": {**BLOCK, "x": 1}}
    assert undeclared("event-block", wrapped) == ["event-block.block.x"]
    call = {**BLOCK, "type": "tool_use", "toolName": "T", "toolUseId": "t", "status": "error"}
    del call["content"]
    assert undeclared("block", {**call, "input": {"any": {"thing": 1}}}) == []
    assert undeclared("block", {**call, "input": 1, "summary": "s"}) == ["block.summary"]


def test_every_example_has_declared_fields_only() -> None:
    """So they are complete as documentation."""
    for kind, both in EXAMPLES.items():
        assert {fault for value in both["valid"] for fault in undeclared(kind, value)} <= NEWER


def test_what_a_command_prints_says_of_which_kind_it_is() -> None:
    """So that `validate -` takes it."""
    for kind in PRINTED:
        for value in EXAMPLES[kind]["valid"]:
            assert (kind_of_line(value) or kind_of_document(value)) == kind, value


def test_documents_that_share_fields_are_distinguished() -> None:
    """A call's block has a session id and a status as a list row has; a subagent is two things."""
    call = {"toolName": "T", "toolUseId": "t", "input": {}, "status": "success"}
    block = {**BLOCK, "type": "tool_use", **call}
    assert kind_of_document(block) == "block"
    subagent = {"type": "subagent", "id": "a" * 24, "parentAgentId": "b" * 24, "name": "fox"}
    assert kind_of_document(subagent) == "descriptor"


@pytest.mark.parametrize("name", ["full", "minimal"])
def test_a_whole_directory_has_declared_fields_only(name: str) -> None:
    """Records, derived files, streams."""
    events = set()
    for path in sorted((FIXTURES / "valid" / name).rglob("*.json*")):
        data = path.read_bytes()
        lines = data.splitlines() if path.suffix == ".jsonl" else [data]
        values = [orjson.loads(line) for line in lines]
        events |= {value.get("event") for value in values}
        assert undeclared_in(values) == [], path
    if name == "full":
        assert len(events & {*EVENTS}) >= 8
