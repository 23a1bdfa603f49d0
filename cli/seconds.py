"""Options that say how long, in seconds."""

from __future__ import annotations

from agentsdir.formats.errors import UsageError


def check_seconds(given: float) -> float:
    """Return an option as it is. Raises `UsageError` for `nan`, which no time is longer than."""
    if given != given:
        raise UsageError("nan is no number of seconds")
    return given
