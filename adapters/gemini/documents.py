"""Whole-file sessions of Gemini CLI: objects and lists, read element by element."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from agentsdir.formats.findings import Finding
from agentsdir.formats.rows import Row, salvage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agentsdir.formats.rows import Tally


# Sessions in one JSON object, whose ``messages`` are read one by one, also from half a file.
#
# Clients up to 0.38 rewrite the file on every change, so a crash or a full disk leaves a prefix.
# Only the boundaries of the messages are searched here; each message is then decoded by itself.

# A string, a bracket, a number or word; a quote that stands alone begins an unfinished string.
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[{}\[\]]|[^\s,:{}\[\]"]+|"', re.DOTALL)
OPEN, CLOSE = (b"{", b"["), (b"}", b"]")
# How the client lays out messages: the first, what stands between two, and the end of the list.
_BEGIN, _NEXT, _LAST = b"\n    {", b"\n    },\n    {", b"\n    }\n  ]"
_BRACE = len(b"\n    }")


class _Layout(NamedTuple):
    """The layout of a document, as byte offsets.

    `begin` and `end` enclose the inside of the message list (both None where there is none, `end`
    None where it is not closed); `stop` is behind the document's last brace, None if it is cut.
    """

    elements: list[tuple[int, int]]
    begin: int | None
    end: int | None
    stop: int | None


def document_rows(
    data: bytes, file: str, tally: Tally, report: Callable[[Finding], None]
) -> Iterator[Row]:
    """Yield the header (``messages`` left out), then every complete message.

    Each is one record on `tally`, and so are the bytes behind the last complete message of a
    half-written document. Damaged records are settled here, all others by the caller.
    """
    layout = _survey(data)
    header = _header(data, layout)
    if header or layout.stop is not None:
        tally.lines += 1
        until = len(data) if layout.begin is None else layout.begin
        yield Row(header, 1, 0, until, b"", salvaged=False, lossy=())
    line, at, last = 1, 0, layout.begin or 0
    surveyed = False
    view = memoryview(data)
    pending = iter(layout.elements)
    while element := next(pending, None):
        begin, last = element
        line, at = line + data.count(b"\n", at, begin), begin
        try:
            value = orjson.loads(view[begin:last])
        except orjson.JSONDecodeError:
            if not surveyed and last != _end_of(data, begin):
                # The quick search of `_skim` was wrong about the layout.
                surveyed, last = True, begin
                layout = _survey(data, begin, layout.begin)
                pending = iter(layout.elements)
                continue
            tally.lines += 1
            yield from element_rows(data[begin:last], line, begin, file, tally, report)
        else:
            tally.lines += 1
            length = last - begin
            yield Row(value, line, begin, length, b"", salvaged=False, lossy=())
    if layout.end is not None:
        last = layout.end + 1
    if layout.stop is None:
        why = ("half-document", "the document ends before it is complete")
    elif data[layout.stop :].strip():
        last, why = layout.stop, ("splice", "more bytes stand behind the end of the document")
    else:
        return
    tally.lines += 1
    tally.damaged += 1
    line += data.count(b"\n", at, max(at, last))
    report(Finding(why[0], file, why[1], line, last, len(data) - last))


def _survey(data: bytes, at: int = 0, begin: int | None = None) -> _Layout:
    """Return the layout of a document, from its start or from `at` in its list on."""
    elements: list[tuple[int, int]] = []
    depth = 0 if begin is None else 2
    key = b""
    end = started = None
    tokens = TOKEN.finditer(data, at)
    while match := next(tokens, None):
        token = match.group()
        if token == b'"':
            break
        inside = begin is not None and end is None
        if token in OPEN:
            if depth == 1 and begin is None and token == b"[" and key == b'"messages"':
                begin = match.end()
                tokens = TOKEN.finditer(data, _skim(data, begin, elements))
            elif depth == 2 and inside:
                started = match.start()
            depth += 1
        elif token in CLOSE:
            depth -= 1
            if depth == 2 and inside and started is not None:
                elements.append((started, match.end()))
            elif depth == 1 and inside:
                end = match.start()
            elif depth <= 0:
                return _Layout(elements, begin, end, match.end())
        elif depth == 1:
            key = token
        elif depth == 2 and inside and match.end() < len(data):
            elements.append(match.span())
    return _Layout(elements, begin, end, None)


def _skim(data: bytes, at: int, elements: list[tuple[int, int]]) -> int:
    """Add the messages that are indented as the client does it; return where that ends.

    No string holds a newline as it is, so an indentation is enough to find their ends.
    """
    while data.startswith(_BEGIN, at):
        # Long bytes are found faster than the end alone.
        close = data.find(_NEXT, at)
        more = close >= 0
        if not more and (close := data.find(_LAST, at)) < 0:
            break
        after = close + _BRACE
        elements.append((at + len(_BEGIN) - 1, after))
        at = after + more
    return at


def _end_of(data: bytes, at: int) -> int | None:
    """Return where the value at `at` ends, by its brackets; None if it does not."""
    depth = 0
    for match in TOKEN.finditer(data, at):
        token = match.group()
        depth += (token in OPEN) - (token in CLOSE)
        if depth <= 0:
            return match.end()
    return None


def _header(data: bytes, layout: _Layout) -> dict[str, Any]:
    if layout.begin is None:
        text = data if layout.stop is None else data[: layout.stop]
    else:
        rest = b"]}" if layout.end is None else data[layout.end : layout.stop]
        text = data[: layout.begin] + rest
    for attempt in (text, data[: layout.begin or 0] + b"]}"):
        try:
            value = orjson.loads(attempt)
        except orjson.JSONDecodeError:
            found = salvage(attempt).values if layout.stop is not None else []
            value = found[0][0] if found else None
        if isinstance(value, dict):
            value.pop("messages", None)
            return value
    return {}


def element_rows(
    data: bytes,
    line: int,
    offset: int,
    file: str,
    tally: Tally,
    report: Callable[[Finding], None],
) -> Iterator[Row]:
    """Yield the record that stands in the bytes of one element, or what can be saved of it."""
    try:
        yield Row(orjson.loads(data), line, offset, len(data), data, salvaged=False, lossy=())
        return
    except orjson.JSONDecodeError:
        found = salvage(data)
    if found.finding is None and len(found.values) == 1:
        yield Row(
            found.values[0][0], line, offset, len(data), data, salvaged=False, lossy=found.lossy
        )
        return
    objects = [entry for entry in found.values if isinstance(entry[0], dict)]
    tally.damaged += 1
    tally.recovered += len(objects)
    report(Finding(found.finding or "bad-json", file, found.message, line, offset, len(data)))
    for value, begin, length in objects:
        yield Row(value, line, offset + begin, length, data, salvaged=True, lossy=found.lossy)


# Documents that are one list, or hold one under a key, read element by element.


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
        # A finding about a cut document begins here.
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
        report(Finding(kind, file, message, line, last, len(self.data) - last))


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
