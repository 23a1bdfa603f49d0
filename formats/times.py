"""RFC 3339 UTC timestamps with microseconds and `Z`, the only form we write (decision D9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime


_OURS = "0000-00-00T00:00:00.000000Z"
_OF_DIGITS = str.maketrans("123456789", "0" * 9)


def is_rfc3339(text: str) -> bool:
    """Tell whether `text` is a complete RFC 3339 date-time with an offset, on a day that exists."""
    if text.translate(_OF_DIGITS) == _OURS:
        # Seen in every command, so the pattern of all other forms is not made for it.
        month, day = int(text[5:7]), int(text[8:10])
        year, hour, minute, second = text[:4], text[11:13], text[14:16], text[17:19]
        is_day = year > "0000" and 1 <= month <= 12 and 1 <= day <= 28
        if is_day and hour < "24" and minute < "60" and second < "60":
            return True
    from agentsdir.schemas import rfc3339

    return rfc3339.is_rfc3339(text)


def to_text(moment: datetime) -> str:
    """Format an aware `moment`, e.g. ``2026-01-02T03:04:05.678900Z``."""
    from datetime import UTC

    # Not strftime: its %Y writes the year 1 as "1".
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_text(text: str) -> datetime:
    """Parse an RFC 3339 timestamp. Raises `ValueError`."""
    from datetime import UTC, datetime  # takes a start a millisecond, and few commands reckon

    return datetime.fromisoformat(text).astimezone(UTC)


def of_file(seconds: float) -> str:
    """Format a file's time, in seconds since 1970; file systems hold times beyond the year 9999."""
    from datetime import UTC, datetime

    try:
        return to_text(datetime.fromtimestamp(seconds, UTC))
    except (OSError, OverflowError, ValueError):
        return to_text((datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC))


# Rows come many to a minute: what was checked of a time up to its minute need not be again.
MINUTES = 4096
_minutes: set[str] = set()


def _are_seconds(text: str) -> bool:
    """Tell whether seven characters are the rest of a time in milliseconds, after its minute."""
    return (
        text.isascii()
        and text[2] == "."
        and text[6] == "Z"
        and text[0] < "6"
        and (text[:2] + text[3:6]).isdigit()
    )


def native(value: Any) -> str | None:
    """Return a foreign timestamp as RFC 3339, or None where it says nothing usable.

    Valid text is kept as it stands; a naive time is taken as UTC; numbers are epoch seconds,
    or milliseconds from 10^11 on.
    """
    if isinstance(value, str):
        if value[:17] in _minutes and len(value) == 24 and _are_seconds(value[17:]):
            return value
        if is_rfc3339(value):
            if len(_minutes) < MINUTES:
                _minutes.add(value[:17])
            return value
        from datetime import UTC, datetime

        try:
            moment = datetime.fromisoformat(value)
            return to_text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        except (OverflowError, ValueError):
            return None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        from datetime import UTC, datetime

        try:
            return to_text(datetime.fromtimestamp(value / 1000 if value >= 1e11 else value, UTC))
        except (OverflowError, OSError, ValueError):
            return None
    return None
