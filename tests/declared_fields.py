"""Fields that no schema declares: readers pass over these, so a misspelt one is read as nothing.

The schemas let unknown fields pass, as readers have to. Here an object may have the fields that the
schemas which apply to it declare, and no others. An object of which no schema declares any field
stays open, as a tool's input does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs

from agentsdir.engine.validate.findings import kind_of_document, kind_of_line
from agentsdir.schemas import catalogue, check

Schema = dict[str, Any]


def undeclared(kind: str, value: Any) -> list[str]:
    """Return where `value` has a field that no schema declares, or breaks the schema of `kind`."""
    broken = [f"{kind}{one.pointer}: {one.reason}" for one in check(kind, value)]
    return broken or sorted(set(_undeclared([catalogue.load(kind)], value, kind)))


def undeclared_in(values: list[Any]) -> list[str]:
    """Return the same of values that say of which kind they are; others are passed over."""
    kinds = [(kind_of_line(value) or kind_of_document(value), value) for value in values]
    return [fault for kind, value in kinds if kind for fault in undeclared(kind, value)]


def _undeclared(schemas: list[Schema], value: Any, where: str) -> Iterator[str]:
    applied = [one for schema in schemas for one in _applied(schema, value)]
    if isinstance(value, list):
        items = [one["items"] for one in applied if "items" in one]
        for item in value if items else ():
            yield from _undeclared(items, item, f"{where}[]")
    elif isinstance(value, dict) and any("properties" in one for one in applied):
        for name, field in value.items():
            declared = [inner for one in applied for inner in _of_field(one, name)]
            if not declared:
                yield f"{where}.{name}"
            yield from _undeclared(declared, field, f"{where}.{name}")


def _applied(schema: Schema, value: Any) -> Iterator[Schema]:
    """Yield every schema that says something of the same value."""
    yield schema
    if "$ref" in schema:
        yield from _applied(catalogue.load(_kind(schema["$ref"])), value)
    for one in schema.get("allOf", ()):
        yield from _applied(one, value)
    if "if" in schema:
        yield from _applied(
            schema.get("then" if _is_valid(schema["if"], value) else "else", {}), value
        )


def _of_field(schema: Schema, name: str) -> list[Schema]:
    if name in schema.get("properties", {}):
        return [schema["properties"][name]]
    others = schema.get("additionalProperties")
    return [others] if isinstance(others, dict) else [{}] if others else []


def _kind(reference: str) -> str:
    return reference.removeprefix(catalogue.BASE).removesuffix(catalogue.SUFFIX)


_validators: dict[int, jsonschema_rs.Validator] = {}


def _is_valid(schema: Schema, value: Any) -> bool:
    # The catalogue keeps its schemas for good, so that they keep their ids.
    if id(schema) not in _validators:
        _validators[id(schema)] = jsonschema_rs.Draft202012Validator(
            {"$id": catalogue.BASE + "part", **schema}, registry=_registry()
        )
    return _validators[id(schema)].is_valid(value)


@cache
def _registry() -> jsonschema_rs.Registry:
    resources = [(catalogue.identifier(kind), catalogue.load(kind)) for kind in catalogue.kinds()]
    return jsonschema_rs.Registry(resources, draft=jsonschema_rs.Draft202012)
