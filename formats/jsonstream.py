"""A JSON document that is read from a stream, piece by piece: no text in it need be held.

Any document that a JSON writer makes is read, whatever its white space and the order of its keys.
What is not asked for is passed over without being decoded, its texts and nesting apart.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentsdir.formats import jsontext
from agentsdir.formats.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.source import Readable

_CHUNK = 256 * 1024
_MAX_KEYS = 10_000
_MAX_KEY = 4096
_SPACE = re.compile(rb"[ \t\r\n]*+")
_WORD = re.compile(rb"[-+.0-9A-Za-z]*+")
_SCALAR = re.compile(
    rb"true|false|null|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?"
).fullmatch
_MAX_WORD = 1024
"""Bytes of a number; there is no need of so many."""
_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_CUT = 12
"""A surrogate pair has one byte less while its last digit is missing."""


class JSONStream:
    """The cursor of a document: each method reads the value at it, or a part of that, and goes on.

    All raise `Invalid` (kind ``not-json``) with the offset in bytes for what is no JSON, ends too
    early, or nests deeper than `jsontext.MAX_DEPTH`.
    """

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0
        self._passed = 0
        self._depth = 0

    def members(self) -> Iterator[str]:
        """Yield each key of the object at the cursor, whose value the caller reads or skips.

        Raises also for a key that stands twice, since readers differ in which of the two counts.
        """
        seen: set[str] = set()
        for _ in self._inside(b"{", b"}"):
            key = self.text(_MAX_KEY)
            if key in seen:
                raise self._error(f"the key {key[:40]!r} stands twice in an object")
            seen.add(key)
            if len(seen) > _MAX_KEYS:
                raise self._error(f"an object has more than {_MAX_KEYS} keys")
            self._expect(b":")
            yield key

    def items(self) -> Iterator[None]:
        """Yield before each item of the list at the cursor, which the caller reads or skips."""
        return self._inside(b"[", b"]")

    def text(self, most: int) -> str:
        """Return the text at the cursor. Raises also for one of more than `most` characters."""
        found = ""
        for piece in self.pieces():
            found += piece
            if len(found) > most:
                raise self._error(f"a text has more than {most} characters")
        return found

    def pieces(self) -> Iterator[str]:
        """Yield the text at the cursor in pieces."""
        self._expect(b'"')
        while True:
            match = _TEXT.match(self._data, self._at)
            assert match is not None
            end = match.end()
            if self._data[end : end + 1] == b'"':
                yield self._decoded(end)
                self._at = end + 1
                return
            yield from self._whole_part(end)
            if not self._more():
                raise self._error("it ends too early")

    def _whole_part(self, end: int) -> Iterator[str]:
        """Yield a text as far as it does not end within a character."""
        for cut in range(end, max(end - _CUT, self._at), -1):
            try:
                piece = self._decoded(cut)
            except Invalid:
                continue
            self._at = cut
            yield piece
            return
        if end - self._at > _CUT:
            self._decoded(end)  # it raises, and says why

    def _decoded(self, end: int) -> str:
        try:
            found = jsontext.decode(b'"%b"' % self._data[self._at : end])
        except jsontext.JSONDecodeError as error:
            raise self._error(f"a text cannot be decoded: {error.msg}") from error
        assert isinstance(found, str)
        return found

    def skip(self) -> None:
        """Pass over the value at the cursor."""
        closing: list[bytes] = []
        while True:
            start = self._peek()
            if start in (b"{", b"["):
                self._at += 1
                closing.append(b"}" if start == b"{" else b"]")
                if self._depth + len(closing) > jsontext.MAX_DEPTH:
                    raise self._too_deep()
                if self._peek() != closing[-1]:
                    self._skip_key(closing)
                    continue
            elif start == b'"':
                for _ in self.pieces():
                    pass
            else:
                self._scalar()
            while closing and self._peek() == closing[-1]:
                self._at += 1
                closing.pop()
            if not closing:
                return
            self._expect(b",")
            self._skip_key(closing)

    def _skip_key(self, closing: list[bytes]) -> None:
        if closing[-1] == b"}":
            for _ in self.pieces():
                pass
            self._expect(b":")

    def _scalar(self) -> None:
        if not self._peek():
            raise self._error("it ends too early")
        while len(self._data) - self._at < _MAX_WORD and self._more():
            pass
        match = _WORD.match(self._data, self._at)
        assert match is not None
        if len(match[0]) >= _MAX_WORD or not _SCALAR(match[0]):
            raise self._error("no value stands")
        self._at = match.end()

    def end(self) -> None:
        """Check that nothing follows."""
        if self._peek():
            raise self._error("something follows its end")

    def _inside(self, opening: bytes, closing: bytes) -> Iterator[None]:
        self._expect(opening)
        self._depth += 1
        if self._depth > jsontext.MAX_DEPTH:
            raise self._too_deep()
        if self._peek() != closing:
            yield
            while self._peek() != closing:
                self._expect(b",")
                yield
        self._at += 1
        self._depth -= 1

    def _expect(self, wanted: bytes) -> None:
        if (found := self._peek()) != wanted:
            raise self._error(f"no {wanted.decode()} stands" if found else "it ends too early")
        self._at += 1

    def _peek(self) -> bytes:
        """Return the next byte that is no white space; nothing at the end."""
        while True:
            match = _SPACE.match(self._data, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._data):
                return self._data[self._at : self._at + 1]
            if not self._more():
                return b""

    def _more(self) -> bool:
        piece = self._stream.read(_CHUNK)
        self._passed += self._at
        self._data, self._at = self._data[self._at :] + piece, 0
        return bool(piece)

    def _too_deep(self) -> Invalid:
        return self._error(f"it nests deeper than {jsontext.MAX_DEPTH} levels")

    def _error(self, reason: str) -> Invalid:
        return Invalid(f"{reason}, at byte {self._passed + self._at}", kind="not-json")
