"""Which schemas there are, and their text. A schema is a file; a kind is that file's name."""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson

VERSION = "v1"
BASE = f"https://agentsdir.dev/schemas/{VERSION}/"
SUFFIX = ".schema.json"


@cache
def kinds() -> tuple[str, ...]:
    """Return the name of every schema, sorted."""
    return tuple(
        sorted(
            entry.name.removesuffix(SUFFIX)
            for entry in _folder().iterdir()
            if entry.name.endswith(SUFFIX)
        )
    )


@cache
def load(kind: str) -> dict[str, Any]:
    """Return the schema of a kind; not to be changed. Raises `KeyError` for an unknown kind."""
    if kind not in kinds():
        raise KeyError(kind)
    schema: dict[str, Any] = orjson.loads(_folder().joinpath(kind + SUFFIX).read_bytes())
    return schema


def identifier(kind: str) -> str:
    """Return the `$id` of a kind."""
    return f"{BASE}{kind}{SUFFIX}"


def _folder() -> Any:
    from importlib.resources import files

    return files("agentsdir.schemas").joinpath(VERSION)
