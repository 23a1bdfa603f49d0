"""RFC 3339 date-times, checked by hand: JSON Schema's `date-time` fails open in most validators."""

from __future__ import annotations

import re

RFC3339 = re.compile(
    r"""(?!0000)[0-9]{4}-
    (?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])
    |(?:0[13-9]|1[0-2])-(?:29|30)
    |(?:0[13578]|1[02])-31
    |(?<=(?:..(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-)02-29)
    [Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?
    (?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])""",
    re.VERBOSE,
)


def is_rfc3339(text: str) -> bool:
    """Tell whether `text` is a complete RFC 3339 date-time with an offset, on a day that exists."""
    return RFC3339.fullmatch(text) is not None
