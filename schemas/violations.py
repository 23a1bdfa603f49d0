"""What a validator says about a value: where, why, and what stands there."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

SHOWN = 80


class Violation(NamedTuple):
    """One breach of a schema.

    `pointer` is a JSON pointer (RFC 6901), empty for the whole value. `value` is the JSON that
    stands there, cut to about 80 characters.
    """

    pointer: str
    reason: str
    value: str

    def __str__(self) -> str:
        """Render the reason with its place."""
        return f"{self.reason} at {self.pointer}" if self.pointer else self.reason


def pointer_of(path: tuple[str | int, ...]) -> str:
    """Return the JSON pointer to a place inside a value."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


def shown(value: Any) -> str:
    """Return a value as JSON of at most about 80 characters.

    Lists and objects of any size are cheap: only what can be shown is looked at.
    """
    if isinstance(value, str):
        text = json.dumps(value[:SHOWN])
    elif isinstance(value, dict):
        keys = ", ".join(json.dumps(key[:SHOWN]) for key in list(value)[:8])
        text = f"{{{keys}{', …' if len(value) > 8 else ''}}}"
        return _cut(text if value else "{}")
    elif isinstance(value, list):
        return f"a list of {len(value)}" if value else "[]"
    else:
        text = json.dumps(value)
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
