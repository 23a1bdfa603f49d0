"""Where the values of a JSON text stand, and what decoders let pass in silence (decision D30).

A decoder keeps the last of two equal keys and may round an integer that is too big. This scan
looks at the text itself. It keeps no recursion and no copy: one pass over the bytes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

from agentsdir.schemas.violations import pointer_of

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_INT = 2**53 - 1
_TOKEN = re.compile(
    rb"[ \t\r\n]*(?:"
    rb'("[^"\\]*(?:\\.[^"\\]*)*")|(-?[0-9][-+.0-9Ee]*)|([{}\[\]:,])|([A-Za-z-]+))',
    re.DOTALL,
)
_STRING, _NUMBER, _MARK = 1, 2, 3


class Place(NamedTuple):
    """A value of the text: its JSON pointer, its first byte, and what is wrong with it there.

    `flaw` is ``duplicate-key`` (the value's key stood in its object before), ``big-integer``
    (beyond 2^53 - 1), or empty.
    """

    pointer: str
    offset: int
    flaw: str


class _Inside:
    """An object or list that is open: its keys so far, or how many items it has."""

    __slots__ = ("count", "key", "keys")

    def __init__(self, *, is_object: bool) -> None:
        self.keys: set[str] | None = set() if is_object else None
        self.key = ""
        self.count = 0


def flaws(text: bytes) -> Iterator[Place]:
    """Yield the places of `text`, which is JSON, that decoders take without a word."""
    return (Place(_pointer(stack), at, flaw) for stack, at, flaw in _scan(text) if flaw)


def find(text: bytes, pointer: str) -> int:
    """Return the byte at which the value at `pointer` stands; of its nearest parent if it lacks."""
    best = ("", 0)
    depth = pointer.count("/")
    for stack, at, _ in _scan(text):
        if len(stack) > depth:
            continue  # deeper than what is looked for; to name such a place costs its depth
        here = _pointer(stack)
        # The last of two equal keys is the one that a decoder keeps.
        near = pointer == here or pointer.startswith(here + "/")
        if near and len(here) >= len(best[0]):
            best = (here, at)
    return best[1]


def _scan(text: bytes) -> Iterator[tuple[list[_Inside], int, str]]:
    """Yield each value's place: what is open around it, its first byte, and its flaw."""
    stack: list[_Inside] = []
    at = 0
    flaw = ""
    while match := _TOKEN.match(text, at):
        at = match.end()
        kind = match.lastindex
        token = match[kind] if kind else b""
        inside = stack[-1] if stack else None
        if kind == _MARK and token in b"}]:,":
            if token in b"}]":
                stack.pop()
            elif token == b"," and inside is not None:
                inside.count += 1
                inside.key = ""
            continue
        if kind == _STRING and inside is not None and inside.keys is not None and not inside.key:
            key = json.loads(token)
            flaw = "duplicate-key" if key in inside.keys else ""
            inside.keys.add(key)
            inside.key = "=" + key  # never empty, so that "" can be a key
            continue
        if kind == _NUMBER and not flaw and _is_big(token):
            flaw = "big-integer"
        yield stack, match.start(kind or 0), flaw
        flaw = ""
        if kind == _MARK:
            stack.append(_Inside(is_object=token == b"{"))


def _is_big(token: bytes) -> bool:
    if len(token) < 16 or not token.removeprefix(b"-").isdigit():
        return False
    return len(token) > 17 or not -MAX_INT <= int(token) <= MAX_INT


def _pointer(stack: list[_Inside]) -> str:
    return pointer_of(tuple(i.count if i.keys is None else i.key[1:] for i in stack))
