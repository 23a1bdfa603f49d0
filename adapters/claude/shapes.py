"""Reading foreign values: each function takes anything and gives the type it names."""

from __future__ import annotations

import re
from typing import Any

# What real agent ids look like; anything else in their place is no id.
SYNTHETIC = "<synthetic>"
"""The model of a message that the client wrote itself."""
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_RESERVED = "main"
_ROW = frozenset({"parentUuid", "uuid", "type", "sessionId"})


def text(value: Any) -> str:
    """Return `value` if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def count(value: Any) -> int:
    """Return `value` if it is a whole number from 0 to 2^53, else 0."""
    return value if type(value) is int and 0 <= value < 2**53 else 0


def identifier(value: Any) -> str | None:
    """Return `value` if it can stand in an id as it is: a short ASCII string."""
    if isinstance(value, str) and 0 < len(value) <= 256 and value.isascii():
        return value
    return None


def agent_id(value: Any) -> str | None:
    """Return `value` if it can name a subagent's thread."""
    if isinstance(value, str) and value != _RESERVED and _AGENT_ID.fullmatch(value):
        return value
    return None


def is_row(value: Any) -> bool:
    """Tell whether an object found amid damage is a row of the chain, and not a part of one."""
    return isinstance(value, dict) and _ROW.issubset(value)


def parts(content: Any) -> list[Any]:
    """Return message content as a list of parts: strings stand for text parts."""
    if isinstance(content, list):
        return content
    return [] if content is None else [content]


def part_text(part: Any) -> str | None:
    """Return the text of a text part (or bare string), None for parts of other kinds."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text":
        return text(part.get("text"))
    return None


def all_text(content: Any) -> str:
    """Return the text parts of message or result content, joined by newlines."""
    if isinstance(content, str):
        return content
    found = [part_text(part) for part in parts(content)]
    return "\n".join(piece for piece in found if piece)
