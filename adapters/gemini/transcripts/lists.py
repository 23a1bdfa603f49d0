"""Documents that are one list, or hold one under a key: read element by element, half ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.gemini.transcripts.documents import CLOSE, OPEN, TOKEN, element_rows
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.salvage import salvage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agentsdir.formats.reading.rows import Row, Tally


class ListDocument:
    """Where the elements of a document's lists stand, and what stands around them.

    `lists` has byte ranges by key, those of a bare list under ``""``; `around` is the object
    without its lists, `{}` for a bare list; `stop` is behind the last bracket, None if it is cut.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.lists: dict[str, list[tuple[int, int]]] = {}
        self.stop: int | None = None
        self.around: dict[str, Any] = {}
        # What is told of a cut document begins here.
        self.last = 0
        self._survey()

    def _survey(self) -> None:
        depth, begin, key, name = 0, 0, b"", None
        bare = self.data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
        base = 1 if bare else 2
        rest, at = [], 0
        for match in TOKEN.finditer(self.data):
            token = match.group()
            if token == b'"':
                break
            if token in OPEN:
                if depth == base - 1 and token == b"[":
                    name = "" if bare else _name(key)
                    self.lists.setdefault(name, [])
                    rest.append(self.data[at : match.end()])
                elif depth == base:
                    begin = match.start()
                depth += 1
            elif token in CLOSE:
                depth -= 1
                if depth == base and name is not None:
                    self.lists[name].append((begin, match.end()))
                    self.last = match.end()
                elif depth == base - 1 and name is not None:
                    name, at = None, match.start()
                    self.last = match.end()
                if depth <= 0:
                    self.stop = match.end()
                    break
            elif depth == base and name is not None and match.end() < len(self.data):
                self.lists[name].append(match.span())
                self.last = match.end()
            elif depth == 1:
                key = token
        if not bare:
            self.around = _object(b"".join(rest) + self.data[at : self.stop])

    def rows(
        self, names: Sequence[str], file: str, tally: Tally, report: Callable[[Finding], None]
    ) -> Iterator[Row]:
        """Yield the elements of the first list of `names` that there is.

        Each is one record on `tally`, settled by the caller; damage is settled here.
        """
        line, at = 1, 0
        found = next((self.lists[name] for name in names if name in self.lists), [])
        for begin, end in found:
            line, at = line + self.data.count(b"\n", at, begin), begin
            tally.lines += 1
            yield from element_rows(self.data[begin:end], line, begin, file, tally, report)
        if self.stop is None:
            last, message = self.last, "the document ends before it is complete"
        elif self.data[self.stop :].strip():
            last, message = self.stop, "more bytes stand behind the end of the document"
        else:
            return
        tally.lines += 1
        tally.damaged += 1
        line += self.data.count(b"\n", at, max(at, last))
        kind = "half-document" if self.stop is None else "splice"
        report(Finding(kind, file, line, last, len(self.data) - last, message))


def _name(key: bytes) -> str:
    try:
        value = orjson.loads(key)
    except orjson.JSONDecodeError:
        return "?"
    return value if isinstance(value, str) else "?"


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        found = salvage(data).values
        value = found[0][0] if found else None
    return value if isinstance(value, dict) else {}
