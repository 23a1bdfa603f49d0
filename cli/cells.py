"""How many columns of a terminal a text takes, and texts cut to columns."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment


def encoding_of(env: Environment) -> str:
    """Return what the user's terminal shows, by the locale's name: utf-8, or else ascii."""
    named = (env.variables.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, named), "")
    return "utf-8" if "utf" in locale.lower() else "ascii"


# Characters that show nothing by themselves: marks upon others, joiners, variation selectors.
_NO_WIDTH = frozenset(("Mn", "Me", "Cf"))


def width_of(text: str) -> int:
    """Return how many columns a text takes. It is one line, without control characters."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


@lru_cache(4096)
def _columns(character: str) -> int:
    if character.isascii():
        return 1
    import unicodedata  # its tables are large, and most texts need none of them

    if unicodedata.category(character) in _NO_WIDTH:
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _most(columns: int) -> int:
    """Return how many characters a text of so many columns may have: three for each, and some.

    No language has more, and terminals get slow, or draw over other rows, with thousands of marks.
    """
    return 3 * max(columns, 0) + 64


def cut(text: str, columns: int, mark: str = "…", *, keep_end: bool = False) -> str:
    """Return a text that takes at most `columns`, with `mark` where something is left out.

    Args:
        keep_end: leave out the beginning, as of a path, whose end says more.
    """
    most = _most(columns)
    if len(text) <= most and width_of(text) <= columns:
        return text
    room = columns - width_of(mark)
    if room < 0:
        return mark[: max(columns, 0)]
    kept: list[str] = []
    for character in reversed(text[-most:]) if keep_end else text[:most]:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    if keep_end:
        return mark + "".join(reversed(kept))
    return "".join(kept) + mark


def on_one_line(text: str, columns: int) -> str:
    """Return the beginning of a text with each run of white space as one space.

    Args:
        columns: the result has at least as many characters if the text has; the rest of a long
            text is not looked at.
    """
    return re.sub(r"\s+", " ", text[: 4 * columns + 100].strip())


def within(path: str, folder: str) -> str:
    """Return a path as it is seen from a folder that it lies in; any other as it stands."""
    inside = path.removeprefix(folder.rstrip("/") + "/")
    if not folder.startswith("/") or not inside or ".." in inside.split("/"):
        return path
    return inside


def wrapped(line: str, columns: int) -> list[str]:
    """Return a line as rows of at most some columns, cut wherever a row is full."""
    rows, columns = [], max(columns, 2)
    while width_of(line[: columns + 1]) > columns or len(line) > columns:
        row = cut(line[: columns + 1], columns, "")
        if row == line:
            break
        rows.append(row or line[0])
        line = line[len(rows[-1]) :]
    return [*rows, line]
