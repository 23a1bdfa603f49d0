"""TOML that people and strangers write, read within bounds.

See docs/configuration.md, "Limits of files".

`tomllib` takes time in the square of the parts of a dotted key: 64 KiB of them keep it busy for
half a minute.
"""

from __future__ import annotations

from typing import Any

MAX_DOTS = 1000
"""Dots in one line, in which a key with all its parts has to stand."""


def decode(data: bytes, most: int) -> dict[str, Any]:
    """Return what a TOML document says.

    Args:
        data: the document, or its first bytes if it has more than `most`.
        most: how many bytes it may have.

    Raises `ValueError` with the reason, which completes "the file …".
    """
    import tomllib  # few users have such a file, and each command would pay for it

    if len(data) > most:
        raise ValueError(f"has over {most} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"is not TOML: {error}") from error
    if any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise ValueError(f"has over {MAX_DOTS} dots in one line")
    try:
        found = tomllib.loads(text)
        str(found)  # hexadecimal integers may be longer than Python shows
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not TOML: {error}") from error
    return found
