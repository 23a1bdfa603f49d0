"""Tools: made from a schema and a handler, or from a function with annotations."""

from __future__ import annotations

from threading import Event
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.engine.extensions import no_spawn
from agentsdir.engine.tools import ToolContext, ToolOutput, create_tool, tool
from agentsdir.formats.errors import UsageError

CONTEXT = ToolContext(
    agent_id="agent",
    session_id="session",
    turn_id="turn",
    tool_use_id="use",
    spawn=no_spawn,
    emit=lambda _fields: None,
    signal=Event(),
    context={},
)


class Place(TypedDict):
    """Where."""

    city: str
    country: NotRequired[Annotated[str, "two letters"]]


def test_a_function_becomes_a_tool_with_what_its_annotations_and_docstring_say() -> None:
    """A default makes a field optional; the context is no field."""

    @tool
    def forecast(
        place: Place,
        days: int = 3,
        unit: Literal["C", "F"] = "C",
        *,
        words: list[str] | None = None,
        ctx: ToolContext,
    ) -> str:
        """Say how the weather will be.

        It is a guess.

        Args:
            place: where; a city
                and a country.
            days (int): how many.

        Returns:
            A sentence.
        """
        return f"{place['city']} {days} {unit} {words} {ctx.turn_id}"

    assert forecast.name == "forecast"
    assert forecast.description == "Say how the weather will be.\n\nIt is a guess."
    assert forecast.input_schema == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "country": {"type": "string", "description": "two letters"},
                },
                "additionalProperties": False,
                "required": ["city"],
                "description": "where; a city and a country.",
            },
            "days": {"type": "integer", "description": "how many."},
            "unit": {"enum": ["C", "F"]},
            "words": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
        },
        "additionalProperties": False,
        "required": ["place"],
    }
    said = forecast.run({"place": {"city": "Ulm"}, "days": 1}, CONTEXT)
    assert said == ToolOutput("Ulm 1 C None turn")
    assert forecast.run({"place": {"city": "Ulm"}, "day": 1}, CONTEXT).is_error


def test_a_decorated_tool_may_have_another_name_and_need_permission() -> None:
    """As one that `create_tool` makes."""

    @tool(name="rm", requires_confirmation=True)
    def remove(path: str) -> None:
        """Remove a file."""

    assert (remove.name, remove.requires_confirmation) == ("rm", True)
    made = create_tool("rm", {"type": "object"}, lambda _given: None, requires_confirmation=True)
    assert (made.name, made.requires_confirmation) == ("rm", True)
    assert made.run({}, CONTEXT) == ToolOutput("")


def _positional(a: int, /) -> None:
    """It has no name."""


def _any_number(*a: int) -> None:
    """They have no names."""


def _odd(a: set[int]) -> None:
    """A set is no JSON."""


def _numbered(a: dict[int, str]) -> None:
    """Keys of JSON are texts."""


def _absent(a: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Its annotation means nothing."""


@pytest.mark.parametrize("function", [_positional, _any_number, _odd, _numbered, _absent])
def test_a_function_that_no_input_can_call_is_refused_when_it_is_decorated(function: Any) -> None:
    """Not when the model calls it."""
    with pytest.raises(UsageError) as refused:
        tool(function)
    assert refused.value.kind == "bad-tool"


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("", {"type": "object"}),
        ("two words", {"type": "object"}),
        ("x" * 129, {"type": "object"}),
        ("x", {}),
        ("x", {"type": "array"}),
        ("x", {"type": "object", "properties": {"a": {"type": "no type"}}}),
        ("x", {"type": "object", "properties": {"a": {"$ref": "https://example.org/a.json"}}}),
    ],
)
def test_what_is_no_tool_is_refused_when_it_is_made(name: str, schema: dict[str, Any]) -> None:
    """A name that models do not take, and what is no schema of an object; nothing is fetched."""
    with pytest.raises(UsageError) as refused:
        create_tool(name, schema, lambda given: given)
    assert refused.value.kind == "bad-tool"


# Any annotation: a value fits the schema if, and only if, it fits the annotation.

PLAIN: list[Any] = [str, int, float, bool, None]
NAMES = ["a", "b"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-2, 2) | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)


def annotations() -> st.SearchStrategy[Any]:
    """Return any annotation that a tool may have."""
    leaves = st.sampled_from([*PLAIN, Any, Literal["a", 1], Place, list, dict])
    return st.recursive(
        leaves,
        lambda inner: (
            inner.map(lambda one: list[one])  # type: ignore[valid-type]
            | inner.map(lambda one: dict[str, one])  # type: ignore[valid-type]
            | inner.map(lambda one: one | None if one is not None else str | None)
            | inner.map(lambda one: Annotated[one, "described"])
        ),
        max_leaves=4,
    )


def fits(value: Any, hint: Any) -> bool:
    """Tell whether a value is of an annotation, as JSON has it."""
    name, inner = getattr(hint, "__origin__", None), getattr(hint, "__args__", ())
    if hint is Any:
        return True
    if hint in (None, type(None)):
        return value is None
    if hint is int:
        return (
            not isinstance(value, bool) and isinstance(value, int | float) and value == int(value)
        )
    if hint is float:
        return not isinstance(value, bool) and isinstance(value, int | float)
    if hint is Place:
        known = isinstance(value, dict) and "city" in value and value.keys() <= {"city", "country"}
        return known and all(isinstance(one, str) for one in value.values())
    if isinstance(hint, type) and name is None:
        return isinstance(value, hint)
    if hasattr(hint, "__metadata__"):
        return fits(value, hint.__origin__)
    if name is list:
        return isinstance(value, list) and all(fits(one, inner[0]) for one in value)
    if name is dict:
        return isinstance(value, dict) and all(fits(one, inner[1]) for one in value.values())
    if name is Literal:
        return any(value == one and type(value) is type(one) for one in inner) or (
            isinstance(value, float) and value == 1
        )
    return any(fits(value, one) for one in inner)


@given(annotations(), JSON)
def test_the_schema_of_an_annotation_takes_what_the_annotation_takes(hint: Any, value: Any) -> None:
    """And the handler gets it as it was given."""

    def keep(field: Any) -> list[Any]:
        return [field]

    keep.__annotations__ = {"field": hint}
    made = tool(keep)
    output = made.run({"field": value}, CONTEXT)
    assert output == (ToolOutput([value]) if fits(value, hint) else output._replace(is_error=True))
