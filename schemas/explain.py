"""Why a value is invalid: jsonschema over the schemas of this package. It never fetches anything.

The schemas hold no unions. They pick the branch by its discriminator (an event's name, a block's
type) with if and then, so every error speaks of the branch that was meant.
"""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from agentsdir.schemas import catalogue
from agentsdir.schemas.rfc3339 import is_rfc3339
from agentsdir.schemas.violations import Violation, pointer_of, shown

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

_END = r"(?!\n)"  # what keeps Python's $ from letting a newline through
MOST = 20  # of one value; the next ones show when those are mended


def explain(kind: str, value: Any) -> list[Violation]:
    """Return up to 20 violations, in the order of the value. Raises `KeyError`: unknown kind."""
    errors = islice(_validator(kind).iter_errors(value), MOST)
    found = {Violation(*_violation(error)): None for error in errors}
    return sorted(found, key=lambda violation: violation.pointer)


@cache
def _validator(kind: str) -> Draft202012Validator:
    formats = FormatChecker(())
    formats.checks("date-time")(_is_time)
    return Draft202012Validator(catalogue.load(kind), registry=_registry(), format_checker=formats)


def _is_time(value: object) -> bool:
    return not isinstance(value, str) or is_rfc3339(value)


@cache
def _registry() -> Registry[Any]:
    # An explicit registry has no retriever: a reference it cannot resolve is an error.
    registry: Registry[Any] = Registry()
    return registry.with_resources(
        (catalogue.identifier(kind), Resource.from_contents(catalogue.load(kind)))
        for kind in catalogue.kinds()
    )


def _violation(error: ValidationError) -> tuple[str, str, str]:
    return pointer_of(tuple(error.absolute_path)), _reason(error), shown(error.instance)


def _reason(error: ValidationError) -> str:
    """Say in few words what is wrong; the library's own messages repeat the whole value."""
    wanted: Any = error.validator_value
    value: Any = error.instance
    rule = error.validator
    if rule == "required":
        # One error for each field; said once for all of them.
        return f"lacks {', '.join(name for name in wanted if name not in value)}"
    if rule == "type":
        types = " or ".join([wanted] if isinstance(wanted, str) else wanted)
        return f"must be {types}, not {_type(value)}"
    if rule == "enum":
        return f"{shown(value)} is none of {', '.join(str(word) for word in wanted)}"
    if rule == "const":
        return f"must be {shown(wanted)}, not {shown(value)}"
    if rule == "format":
        return f"{shown(value)} is no RFC 3339 date-time"
    if rule == "pattern":
        return f"{shown(value)} does not match {wanted.removesuffix(_END)}"
    if rule in ("minimum", "maximum"):
        return f"{shown(value)} is {'less' if rule == 'minimum' else 'more'} than {wanted}"
    if rule in ("minLength", "minItems"):
        return "must not be empty"
    return str(rule)


def _type(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")
