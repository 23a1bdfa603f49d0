"""RFC 3339 date-times, checked by hand: JSON Schema's `date-time` fails open in most validators."""

from __future__ import annotations

import re
from datetime import date

RFC3339 = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


def is_rfc3339(text: str) -> bool:
    """Tell whether `text` is a complete RFC 3339 date-time with an offset, on a day that exists."""
    if RFC3339.fullmatch(text) is None:
        return False
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True
