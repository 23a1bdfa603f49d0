"""`BLOCKS` is the one table of block types: schemas, checks, live blocks, what is logged anew."""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from agentsdir.engine.sync import LoggedBlocks
from agentsdir.formats import blocks
from agentsdir.formats.blocks import BLOCKS, COMMON, check_block
from agentsdir.formats.errors import Invalid
from agentsdir.formats.sink import LiveSink
from agentsdir.schemas import catalogue

SHOWN = Path(__file__).parents[1] / "schemas" / "examples.json"
EXAMPLES: list[dict[str, Any]] = json.loads(SHOWN.read_text())["block"]["valid"]
JSON_TYPES = {
    str: "string", bool: "boolean", int: "integer", list: "array", dict: "object", NoneType: "null",
}  # fmt: skip
TYPED = {
    "user_message": blocks.UserMessageBlock,
    "assistant_text": blocks.AssistantTextBlock,
    "thinking": blocks.ThinkingBlock,
    "tool_use": blocks.ToolUseBlock,
    "tool_result": blocks.ToolResultBlock,
    "system": blocks.SystemBlock,
    "subagent": blocks.SubagentBlock,
}
VALUES: dict[str, Any] = {
    "content": "text", "subtype": "status", "status": "success", "isError": True, "durationMs": 5,
    "subagentId": None, "output": "text", "input": "text", "redacted": True, "synthetic": True,
    "overflow": {"file": "f"}, "metadata": {"a": 1}, "link": {"method": "m"}, "superseded": True,
    "hidden": True, "lossy": ["too-deep"], "usage": blocks.no_usage(), "source": None,
    "timestamp": "2026-01-02T03:04:05Z",
}  # fmt: skip
"""A value for each field that takes no text."""
OTHERS: dict[str, Any] = {
    "content": "other", "subtype": "log", "status": "error", "isError": False, "durationMs": 6,
    "subagentId": "s", "redacted": False, "synthetic": False, "overflow": {}, "metadata": {},
    "link": {}, "superseded": False, "hidden": False, "lossy": [],
    "usage": blocks.usage(1, 1), "source": {"file": "f", "line": 1, "offset": 0, "length": 1},
    "timestamp": None,
}  # fmt: skip
FIELDS = [(kind, name) for kind, row in BLOCKS.items() for name in row.fields]


def full(kind: str) -> dict[str, Any]:
    """Return a block with each field that its type may have."""
    return {"type": kind, **{name: VALUES.get(name, "text") for name in BLOCKS[kind].fields}}


def json_types(schema: dict[str, Any]) -> set[str]:
    """Return the JSON types that a property of a schema takes; none for any."""
    if "$ref" in schema:
        return {"object"}
    said = schema.get("type", [])
    return {said} if isinstance(said, str) else set(said)


@pytest.mark.parametrize("kind", BLOCKS)
def test_the_fields_of_a_type_are_those_of_its_schema(kind: str) -> None:
    """All of them, with their types; and those of its TypedDict."""
    schema = catalogue.load(f"block-{kind.replace('_', '-')}")
    own = BLOCKS[kind].own
    assert set(own) == set(schema["properties"])
    assert {name for name, row in own.items() if row.required} == set(schema["required"])
    for name, row in own.items():
        types = {JSON_TYPES[each] for each in row.types if each is not object}
        assert types == json_types(schema["properties"][name]), name
    assert set(TYPED[kind].__annotations__) - {"type", *COMMON} == set(own)


def test_the_common_fields_are_those_of_the_envelope() -> None:
    """Whose branches are the types, in order. A block need not say that it has no source."""
    schema = catalogue.load("block")
    assert {"type", *COMMON} == set(schema["properties"])
    required = {name for name, row in COMMON.items() if row.required}
    assert {"type", "source", *required} == set(schema["required"])
    branches = {
        branch["if"]["properties"]["type"]["const"]: branch["then"]["$ref"]
        for branch in schema["allOf"]
    }
    assert list(branches) == list(BLOCKS)
    for kind, reference in branches.items():
        assert reference == f"block-{kind.replace('_', '-')}{catalogue.SUFFIX}"


@pytest.mark.feature("B-01")
def test_an_example_of_each_type_is_taken() -> None:
    """And so is a block with every field that the type may have."""
    known = [block for block in EXAMPLES if block["type"] in BLOCKS]
    assert {block["type"] for block in known} == set(BLOCKS)
    for block in known:
        check_block(block)
    for kind in BLOCKS:
        check_block(full(kind))


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_field_that_lacks_or_has_another_type_is_refused(kind: str, name: str) -> None:
    """A missing one only where the type needs it."""
    row = BLOCKS[kind].fields[name]
    block = full(kind)
    if object not in row.types:
        with pytest.raises(Invalid, match=f"^{name} of a {kind} block is "):
            check_block({**block, name: 1.5})
    del block[name]
    if row.required:
        with pytest.raises(Invalid, match=f"^a {kind} block needs {name}$"):
            check_block(block)
    else:
        check_block(block)


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_a_block_that_differs_in_a_compared_field_is_logged_again(kind: str, name: str) -> None:
    """And one that differs in any other is not."""
    if name in ("id", "conversationId"):
        return  # which make it another block
    logged, block = LoggedBlocks(), full(kind)
    logged.add(block)
    other = {**block, name: OTHERS.get(name, "other")}
    assert other != block
    check_block(other)
    assert logged.differs(other) == BLOCKS[kind].fields[name].compared


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_live_block_says_what_is_not_known_yet(kind: str) -> None:
    """So each event has all that its type needs."""
    late = BLOCKS[kind].until_known
    sink = LiveSink()
    sink.add({name: value for name, value in full(kind).items() if name not in {*late, "hidden"}})
    (event,) = sink.drain()
    assert {name: event["block"][name] for name in late} == late
    check_block(event["block"])
