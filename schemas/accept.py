"""Yes or no, fast: jsonschema-rs over the schemas of this package. It never fetches anything."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jsonschema_rs

from agentsdir.schemas import catalogue
from agentsdir.schemas.rfc3339 import is_rfc3339


def accepts(kind: str, value: Any) -> bool:
    """Tell whether `value` is valid. Raises `KeyError` for an unknown kind.

    False is also the answer for what this validator cannot take in at all, such as lone
    surrogates and nesting beyond 255 levels: `explain` has the last word on those.
    """
    try:
        return _validator(kind, _branches(kind).of(value)).is_valid(value)
    except (ValueError, OverflowError, TypeError, SystemError):  # the last from old versions
        return False


class _Branches(NamedTuple):
    """The branches of a schema: what holds for an object whose `field` has one of `names`."""

    field: str
    names: frozenset[str]

    def of(self, value: Any) -> str | None:
        """Return the name of the branch that a value belongs to; None where it is not known."""
        name = value.get(self.field) if type(value) is dict else None
        return name if type(name) is str and name in self.names else None


@cache
def _branches(kind: str) -> _Branches:
    conditions = catalogue.load(kind).get("allOf", ())
    found = [name for one in conditions if (name := _condition(one)) is not None]
    fields = {field for field, _ in found}
    if len(fields) != 1:
        return _Branches("", frozenset())
    return _Branches(fields.pop(), frozenset(name for _, name in found))


def _condition(part: dict[str, Any]) -> tuple[str, str] | None:
    """Return field and name of the one branch that a part of `allOf` is about; None for others."""
    asked = part.get("if", {}).get("properties", {})
    if len(asked) != 1 or "else" in part:
        return None
    ((field, wanted),) = asked.items()
    exact = {"type": "object", "required": [field], "properties": {field: wanted}}
    name = wanted.get("const") if wanted.keys() == {"const"} else None
    return (field, name) if part["if"] == exact and isinstance(name, str) else None


@cache
def _validator(kind: str, branch: str | None) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(
        catalogue.load(kind) if branch is None else _schema_of_branch(kind, branch),
        formats={"date-time": is_rfc3339},
        validate_formats=True,
        registry=_registry(),
        retriever=_refuse,
    )


def _schema_of_branch(kind: str, branch: str) -> dict[str, Any]:
    """Return a schema without the branches that an object of this one cannot take.

    To ask each of them, for each value, takes longer than all else.
    """
    schema = catalogue.load(kind)
    parts = []
    for part in schema["allOf"]:
        condition = _condition(part)
        if condition is None:
            parts.append(part)
        elif condition[1] == branch:
            parts.append(part["then"])
    # An id of its own: the whole schema keeps its own for those that refer to it.
    return {**schema, "$id": catalogue.identifier(f"{kind}-as-{branch}"), "allOf": parts}


@cache
def _registry() -> jsonschema_rs.Registry:
    resources = [(catalogue.identifier(kind), catalogue.load(kind)) for kind in catalogue.kinds()]
    return jsonschema_rs.Registry(resources, draft=jsonschema_rs.Draft202012, retriever=_refuse)


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri} is no schema of this package, and nothing is fetched")
