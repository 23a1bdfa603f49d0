"""The validator that accepts and the one that explains are of one mind, and stay at home."""

from __future__ import annotations

import copy
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.schemas import check
from agentsdir.schemas.accept import accepts
from agentsdir.schemas.explain import explain

EXAMPLES: dict[str, dict[str, list[Any]]] = json.loads(
    Path(__file__).with_name("examples.json").read_text()
)
KNOWN = [
    (kind, value) for kind, both in EXAMPLES.items() for value in (*both["valid"], *both["invalid"])
]

pytestmark = pytest.mark.feature("C-09")

TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "user",
            "cron",
            "block",
            "turn.start",
            "tool_use",
            "suspended",
            "2026-02-29T00:00:00Z",
            "2024-02-29T23:59:60.5+01:00",
            "2026-01-02T03:04:05Z\n",
            "२०२६-01-02T03:04:05Z",
            "0" * 16,
            "0" * 16 + "\n",
            "a" * 24,
            "٣" * 24,
            "f" * 32 + "\r",
            "ab==",
        ]
    ),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, -1, 1.0, 0.0, -0.0, 1e300, 2**53]),
    TEXTS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside `value`."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return [path, *(place for key, item in items for place in places_in(item, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, Any]:
    """Return a kind and a document near one of its examples."""
    kind, document = draw(st.sampled_from(KNOWN))
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(places_in(document)))
        if not path:
            document = draw(VALUES)
            continue
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        if draw(st.booleans()):
            parent[path[-1]] = draw(VALUES)
        else:
            del parent[path[-1]]
    return kind, document


@settings(max_examples=300, deadline=None)
@given(mutated())
def test_both_validators_agree(sample: tuple[str, Any]) -> None:
    """What one accepts, the other has nothing to say about, over documents good and bad."""
    kind, document = sample
    before = copy.deepcopy(document)

    assert accepts(kind, document) == (explain(kind, document) == [])
    assert document == before


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(EXAMPLES)), VALUES)
def test_both_validators_agree_on_anything(kind: str, value: Any) -> None:
    """They agree on values that are nothing like a document, too."""
    assert accepts(kind, value) == (explain(kind, value) == [])


@pytest.mark.parametrize(
    "value",
    ["\ud800", 10**30, float("inf"), [[]] * 3],
    ids=["lone-surrogate", "big-integer", "infinity", "lists"],
)
def test_a_value_that_one_cannot_take_in_is_left_to_the_other(value: Any) -> None:
    """Where a schema says nothing about a value, an odd one is no violation of it."""
    block = {**EXAMPLES["block-tool-use"]["valid"][0], "input": value}

    assert check("block-tool-use", block) == []


def test_nesting_beyond_a_validator_is_no_violation() -> None:
    """Depth is not what a schema checks, and ends no check with an exception."""
    deep: Any = "x"
    for _ in range(2000):
        deep = [deep]

    assert check("block-tool-use", {**EXAMPLES["block-tool-use"]["valid"][0], "input": deep}) == []


def test_no_validator_looks_anything_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no network to be had, every kind is checked by both."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a validator went to the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for kind, document in KNOWN:
        assert accepts(kind, document) == (explain(kind, document) == [])


def test_a_validator_is_imported_by_the_first_check_only() -> None:
    """An import of the schemas pays for neither; an accepted value pays for the fast one."""
    probe = """
import sys
import agentsdir.schemas as schemas
heavy = ("jsonschema", "jsonschema_rs", "referencing")
print(*(name for name in heavy if name in sys.modules), sep=",")
schemas.check("new-agent", {"type": "agent", "agentId": "a" * 24})
print(*(name for name in heavy if name in sys.modules), sep=",")
schemas.check("new-agent", {})
print(*(name for name in heavy if name in sys.modules), sep=",")
"""
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.splitlines() == ["", "jsonschema_rs", "jsonschema,jsonschema_rs,referencing"]
