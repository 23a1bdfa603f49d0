"""Yes or no, fast: jsonschema-rs over the schemas of this package. It never fetches anything."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema_rs

from agentsdir.schemas import catalogue
from agentsdir.schemas.rfc3339 import is_rfc3339


def accepts(kind: str, value: Any) -> bool:
    """Tell whether `value` is valid. Raises `KeyError` for an unknown kind.

    False is also the answer for what this validator cannot take in at all, such as lone
    surrogates and nesting beyond 255 levels: `explain` has the last word on those.
    """
    try:
        return _validator(kind).is_valid(value)
    except (ValueError, OverflowError, TypeError, SystemError):  # the last from old versions
        return False


@cache
def _validator(kind: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator(
        catalogue.load(kind),
        formats={"date-time": is_rfc3339},
        validate_formats=True,
        registry=_registry(),
        retriever=_refuse,
    )


@cache
def _registry() -> jsonschema_rs.Registry:
    resources = [(catalogue.identifier(kind), catalogue.load(kind)) for kind in catalogue.kinds()]
    return jsonschema_rs.Registry(resources, draft=jsonschema_rs.Draft202012, retriever=_refuse)


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri} is no schema of this package, and nothing is fetched")
