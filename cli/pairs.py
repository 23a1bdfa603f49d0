"""Options that say NAME=VALUE, and may be given more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


def read_pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    """Return what was given as NAME=VALUE; of two values of a name the last.

    Raises `UsageError` for one that is not of this form.
    """
    pairs = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"{option} {text!r} is not NAME=VALUE")
        pairs[name] = value
    return pairs
