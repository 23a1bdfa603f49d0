"""RFC 3339 UTC timestamps with microseconds and `Z`, the only form we write (decision D9)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from agentsdir.schemas.rfc3339 import is_rfc3339


def to_text(moment: datetime) -> str:
    """Format an aware `moment`, e.g. ``2026-01-02T03:04:05.678900Z``."""
    # Not strftime: its %Y writes the year 1 as "1".
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_text(text: str) -> datetime:
    """Parse an RFC 3339 timestamp. Raises `ValueError`."""
    return datetime.fromisoformat(text).astimezone(UTC)


def of_file(seconds: float) -> str:
    """Format a file's time, in seconds since 1970; file systems hold times beyond the year 9999."""
    try:
        return to_text(datetime.fromtimestamp(seconds, UTC))
    except (OSError, OverflowError, ValueError):
        return to_text((datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC))


# Rows come many to a minute: what was checked of a time up to its minute need not be again.
MINUTES = 4096
_minutes: set[str] = set()


# The rest of a time in milliseconds, after its minute.
_SECONDS = re.compile(r"[0-5][0-9]\.[0-9]{3}Z").fullmatch


def native(value: Any) -> str | None:
    """Return a foreign timestamp as RFC 3339, or None where it says nothing usable.

    Valid text is kept as it stands; a naive time is taken as UTC; numbers are epoch seconds,
    or milliseconds from 10^11 on.
    """
    if isinstance(value, str):
        if value[:17] in _minutes and _SECONDS(value, 17):
            return value
        if is_rfc3339(value):
            if len(_minutes) < MINUTES:
                _minutes.add(value[:17])
            return value
        try:
            moment = datetime.fromisoformat(value)
            return to_text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        except (OverflowError, ValueError):
            return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return to_text(datetime.fromtimestamp(value / 1000 if value >= 1e11 else value, UTC))
        except (OverflowError, OSError, ValueError):
            return None
    return None
