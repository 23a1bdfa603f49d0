"""Elements such as ``<status>done</status>`` in texts of the client's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator


class Element(NamedTuple):
    """An element: its tag's `name`, what stands `inside`, and where it starts and ends."""

    name: str
    inside: str
    start: int
    end: int
    opening: re.Match[str]


def elements(text: str, opening: re.Pattern[str]) -> Iterator[Element]:
    """Yield the elements of a text in order; those within another one are part of that one.

    The time that it takes grows with the text, also where thousands of tags are never closed.

    Args:
        text: any text.
        opening: the form of an opening tag. Its first group is the name that closes the element.
    """
    at = 0
    unclosed: set[str] = set()
    while (found := opening.search(text, at)) is not None:
        name, at = found[1], found.end()
        closing = f"</{name}>"
        close = -1 if name in unclosed else text.find(closing, at)
        if close < 0:
            unclosed.add(name)
            continue
        inside, at = text[at:close], close + len(closing)
        yield Element(name, inside, found.start(), at, found)
