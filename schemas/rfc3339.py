"""RFC 3339 date-times, checked by hand: JSON Schema's `date-time` fails open in most validators."""

from __future__ import annotations

import re

RFC3339 = re.compile(
    r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


def is_rfc3339(text: str) -> bool:
    """Tell whether `text` is a complete RFC 3339 date-time with an offset, on a day that exists."""
    if RFC3339.fullmatch(text) is None or text.startswith("0000"):
        return False
    if (day := int(text[8:10])) <= 28:
        return True
    year, month = int(text[:4]), int(text[5:7])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return day <= (30 if month in (4, 6, 9, 11) else 31 if month != 2 else 28 + leap)
