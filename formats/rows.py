"""Bytes to lines, and lines to decoded rows, with every line accounted for (SPEC.md, "Damage")."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import orjson

from agentsdir.formats.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agentsdir.formats.blocks import BlockSource


# Bytes to physical lines. Only LF ends a line, and no line is unbounded.
#
# See docs/reading.md, "Lines".

LINE_CAP = 64 * 1024 * 1024
_CHUNK = 1024 * 1024


class Line(NamedTuple):
    """One physical line. `data` holds its LF where it has one, and is None when over the cap."""

    number: int
    offset: int
    length: int
    data: bytes | None


def read_lines(stream: BinaryIO, *, cap: int = LINE_CAP) -> Iterator[Line]:
    """Yield every physical line of `stream`; memory is bounded by `cap` bytes."""
    number = offset = 0
    while data := stream.readline(cap):
        number += 1
        rest = skip_line(stream, data, cap) if len(data) == cap else 0
        length = len(data) + rest
        yield Line(number, offset, length, None if rest else data)
        offset += length


def skip_line(stream: BinaryIO, data: bytes, cap: int) -> int:
    """Pass over what a line has beyond `data`, its first `cap` bytes; return how many bytes."""
    skipped = 0
    while len(data) == cap and not data.endswith(b"\n"):
        skipped += _skip_hole(stream)
        cap = min(cap, _CHUNK)
        data = stream.readline(cap)
        skipped += len(data)
    return skipped


def _skip_hole(stream: BinaryIO) -> int:
    """Pass over a part of a sparse file that was never written, and so holds no LF.

    A log of ten gigabytes of nothing is what a crash can leave, and is not worth reading.
    """
    try:
        descriptor, here = stream.fileno(), stream.tell()
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            there = os.lseek(descriptor, here, os.SEEK_DATA) if here < end else here
        except OSError as error:
            there = end if error.errno == errno.ENXIO else here
        os.lseek(descriptor, before, os.SEEK_SET)
    except (OSError, AttributeError):  # a pipe, bytes in memory, or a system without holes
        return 0
    stream.seek(there)
    return there - here


# Records out of a damaged line: glued rows, a stub before a row, NUL runs, bad UTF-8.
#
# Only lines that orjson refuses come here. What the text holds whole is returned, with the
# byte range of each value; what it does not hold is never guessed.

# A hostile line may offer millions of places where a record could begin.
MAX_STARTS = 512
MAX_VALUES = 100_000  # no client welds that many records; a hostile line could hold millions
MAX_WORK = 2**28  # characters looked at again, over all starts of one line
_NULS = re.compile("\0+")
_SPACE = re.compile(r"[ \t\r\n]*")


class Salvage(NamedTuple):
    """What one line gave: values with byte start and length, the finding id, lossy reasons.

    `finding` is None when the line is whole and only its values are unusual.
    """

    values: list[tuple[Any, int, int]]
    finding: str | None
    message: str
    lossy: tuple[str, ...]


def salvage(data: bytes, is_record: Callable[[Any], bool] | None = None) -> Salvage:
    """Recover what a refused line holds. `data` may end in LF.

    `is_record` knows a record of the format for sure: such a one is taken even from the middle of
    another, where else an object might be a part of what is damaged.
    """
    try:
        return _salvage(data, is_record)
    except RecursionError:
        return Salvage([], "too-deep", "nesting deeper than the parser allows", ())


def _salvage(data: bytes, is_record: Callable[[Any], bool] | None) -> Salvage:
    body = data.removesuffix(b"\n")
    lossy: list[str] = []
    finding, message = None, ""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        finding, message = "bad-utf8", f"invalid UTF-8 at byte {error.start} of the line"
        lossy.append("bad-utf8")
        # One character for each bad byte keeps character and byte positions convertible.
        text = body.decode(errors="surrogateescape")
    nonfinite: list[str] = []

    def finite(digits: str) -> float | None:
        number = float(digits)
        if math.isfinite(number):
            return number
        nonfinite.append(digits)
        return None

    decoder = json.JSONDecoder(
        strict=False, parse_float=finite, parse_constant=lambda name: nonfinite.append(name)
    )

    if "\0" in text:
        finding = finding or "nul-run"
        message = message or f"{text.count(chr(0))} NUL bytes"
    values: list[tuple[Any, int, int]] = []
    clean = True
    start = 0
    for nuls in chain(_NULS.finditer(text), [None]):
        end = len(text) if nuls is None else nuls.start()
        found, whole = _piece(decoder, text, start, end, is_record)
        values += found
        clean = clean and whole
        start = end if nuls is None else nuls.end()
        if len(values) >= MAX_VALUES:
            clean = False
            break
    if finding is None and (not clean or len(values) > 1):
        if values:
            finding, message = "splice", f"whole records on a damaged line: {len(values)}"
        else:
            finding, message = "bad-json", _why(text)
    if nonfinite:
        lossy.append("non-finite")
    in_bytes = []
    at = done = 0
    for value, begin, end in values:  # each character is measured once, however many values
        at += len(_bytes(text[done:begin]))
        length = len(_bytes(text[begin:end]))
        in_bytes.append((_scrub(value) if lossy else value, at, length))
        at, done = at + length, end
    return Salvage(in_bytes, finding, message, tuple(lossy))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _scrub(value: Any) -> Any:
    """Turn surrogate-escaped bytes into U+FFFD; real lone surrogates are left for `clean`."""
    if isinstance(value, str):
        return re.sub("[\udc80-\udcff]", "\ufffd", value) if not value.isascii() else value
    if isinstance(value, dict):
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    return value


def _why(text: str) -> str:
    try:
        json.loads(text)
    except ValueError as error:
        return (
            "not JSON" if not isinstance(error, json.JSONDecodeError) else f"not JSON: {error.msg}"
        )
    return "not JSON"


def _piece(
    decoder: json.JSONDecoder,
    text: str,
    start: int,
    end: int,
    is_record: Callable[[Any], bool] | None,
) -> tuple[list[tuple[Any, int, int]], bool]:
    """Decode value by value; return them and whether the piece held nothing else."""
    piece = text[start:end]
    found: list[tuple[Any, int, int]] = []
    whole = True
    at = _skip(piece, 0)
    if piece.startswith("\ufeff", at):
        at = _skip(piece, at + 1)
    starts = min(MAX_STARTS, MAX_WORK // (len(piece) + 1) + 1)
    while at < len(piece) and len(found) < MAX_VALUES:
        decoded = _value_at(decoder, piece, at, bool(found) or not whole, is_record)
        if decoded is not None:
            value, stop = decoded
            found.append((value, start + at, start + stop))
            at = _skip(piece, stop)
            continue
        whole = False
        at = piece.find('{"', at + 1)
        starts -= 1
        if at < 0 or starts < 0:
            break
    return found, whole


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value_at(
    decoder: json.JSONDecoder,
    text: str,
    at: int,
    after_damage: bool,
    is_record: Callable[[Any], bool] | None,
) -> tuple[Any, int] | None:
    try:
        value, stop = decoder.raw_decode(text, at)
    except ValueError:
        return None
    if not after_damage and not isinstance(value, dict):
        # `123` or `null` as a whole line is a row; `1{…` is the tail of a stub.
        return (value, stop) if _skip(text, stop) == len(text) else None
    if after_damage and not isinstance(value, dict):
        return None
    # An object nested in a stub also decodes; a record is followed by its end or another one.
    rest = _skip(text, stop)
    if rest == len(text) or text[rest] == "{" or not after_damage:
        return value, stop
    return (value, stop) if is_record is not None and is_record(value) else None


# Physical lines to decoded rows, with every line accounted for (docs/reading.md, "Accounting").

# Stands for the value of a line that says nothing (`read_rows`); no JSON text means it.
NOTHING = object()


class LinePosition(NamedTuple):
    """A place between two lines of a file: the lines and the bytes before it."""

    lines: int
    offset: int


BEGINNING = LinePosition(0, 0)


class Row(NamedTuple):
    """One JSON value of a transcript and where it stands.

    `raw` is the physical line (LF included); of a `salvaged` row, the record's own bytes, which a
    repair would leave as they are. Such rows stood on a damaged line, which the reader has
    already counted; the line of any other must be counted on the `Tally` once.
    """

    value: Any
    line: int
    offset: int
    length: int
    raw: bytes
    salvaged: bool
    lossy: tuple[str, ...]

    def source(self, file: str) -> BlockSource:
        """Return where it stands, as blocks and findings say it (SPEC.md, "Blocks")."""
        return {"file": file, "line": self.line, "offset": self.offset, "length": self.length}


class Tally:
    """Where every line of the input went: ``parsed + hidden + folded + damaged == lines``.

    parsed   gave at least one visible block
    hidden   blank, or bookkeeping that gives hidden blocks only
    folded   restates or amends what another line says
    damaged  could not be read as it stands; `recovered` counts the records found in those

    `hidden_by` and `folded_by` count the hidden and the folded lines by reason.
    """

    __slots__ = ("damaged", "folded_by", "hidden_by", "lines", "parsed", "recovered")

    def __init__(self) -> None:
        self.lines = self.parsed = self.damaged = self.recovered = 0
        self.hidden_by: dict[str, int] = {}
        self.folded_by: dict[str, int] = {}

    @property
    def hidden(self) -> int:
        """The number of hidden lines."""
        return sum(self.hidden_by.values())

    @property
    def folded(self) -> int:
        """The number of folded lines."""
        return sum(self.folded_by.values())

    def settle_parsed(self, row: Row) -> None:
        """Count the line of `row` as parsed."""
        if not row.salvaged:
            self.parsed += 1

    def settle_hidden(self, row: Row, reason: str) -> None:
        """Count the line of `row` as hidden, for a reason in kebab-case."""
        if not row.salvaged:
            self.hide(reason)

    def settle_folded(self, row: Row, reason: str) -> None:
        """Count the line of `row` as folded, for a reason in kebab-case."""
        if not row.salvaged:
            self.fold(reason)

    def hide(self, reason: str, lines: int = 1) -> None:
        """Count some lines as hidden."""
        if lines:
            self.hidden_by[reason] = self.hidden_by.get(reason, 0) + lines

    def fold(self, reason: str, lines: int = 1) -> None:
        """Count some lines as folded."""
        if lines:
            self.folded_by[reason] = self.folded_by.get(reason, 0) + lines

    def add(self, other: Tally) -> None:
        """Add the counts of `other` to these."""
        for name in ("lines", "parsed", "damaged", "recovered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, lines in other.hidden_by.items():
            self.hide(reason, lines)
        for reason, lines in other.folded_by.items():
            self.fold(reason, lines)

    def as_json(self) -> dict[str, int]:
        """Return the six counts, as in a report."""
        names = ("lines", "parsed", "hidden", "folded", "damaged", "recovered")
        return {name: getattr(self, name) for name in names}


def read_rows(
    stream: BinaryIO,
    file: str,
    tally: Tally,
    report: Callable[[Finding], None],
    *,
    cap: int = LINE_CAP,
    is_record: Callable[[Any], bool] | None = None,
    loads: Callable[[bytes], Any] = orjson.loads,
    unread: str = "repeated",
    start: LinePosition = BEGINNING,
) -> Iterator[Row]:
    """Yield every record of a JSON Lines transcript, salvaged ones included.

    `is_record` tells a record of the format from an object within one (`salvage`); `loads` may
    know a cheaper way to a value that stands in a line than to decode it, and returns `NOTHING`
    for a line that is to be counted as folded, for the reason `unread`, and passed over. The stream
    stands at `start`.

    Blank lines are counted as hidden and damaged ones as damaged here; `report` is called with
    each finding. Never raises for what the bytes hold.
    """
    # What `Row(…)` does, without the Python call around it: this runs once per line.
    new = tuple.__new__
    offset, length = start.offset, 0
    for number, data in enumerate(iter(partial(stream.readline, cap), b""), start.lines + 1):
        offset += length
        length = len(data)
        tally.lines += 1
        if length == cap and (rest := skip_line(stream, data, cap)):
            length += rest
            tally.damaged += 1
            report(_oversize(file, number, offset, length, cap))
            continue
        try:
            value = loads(data)
        except orjson.JSONDecodeError:
            if data.isspace() or data == b"\xef\xbb\xbf\n":
                tally.hide("blank")
                continue
        else:
            if type(value) is dict:
                yield new(Row, (value, number, offset, length, data, False, ()))
                continue
            if value is NOTHING:
                tally.fold(unread)
                continue
        yield from _odd_line(number, offset, data, file, tally, report, is_record)


def end_of(stream: BinaryIO, lines: int) -> LinePosition | None:
    """Return the place where a stream stands, after so many lines; None within a line."""
    if not stream.seekable():
        return None
    offset = stream.tell()
    stream.seek(max(0, offset - 1))
    return LinePosition(lines, offset) if stream.read(1) == b"\n" else None


class LineFeed:
    """Lines that come one by one, as records: what `read_rows` does for a whole file.

    Args:
        file: the name that findings say.
        tally: counts the lines.
        report: is called with each finding.
        line: how many lines came before.
        offset: how many bytes came before.
        is_record: tells a record of the format from an object within one.
    """

    def __init__(
        self,
        file: str,
        tally: Tally,
        report: Callable[[Finding], None],
        *,
        line: int = 0,
        offset: int = 0,
        cap: int = LINE_CAP,
        is_record: Callable[[Any], bool] | None = None,
    ) -> None:
        self._file = file
        self._tally = tally
        self._report = report
        self._cap = cap
        self._is_record = is_record
        self.line = line
        self.offset = offset

    def rows(self, data: bytes | int) -> Iterator[Row]:
        """Yield the records of the next line, which has its LF unless it is the last one.

        Of a line that is longer than a reader takes, `data` may be the length.
        """
        return self.rows_of((data,))

    def rows_of(self, lines: Iterable[bytes | int]) -> Iterator[Row]:
        """Yield the records of the next lines, each as `rows` takes it."""
        new, loads, tally = tuple.__new__, orjson.loads, self._tally
        for data in lines:
            if isinstance(data, int):
                self._pass_over(data)
                continue
            length = len(data)
            if length > self._cap:
                self._pass_over(length)
                continue
            self.line += 1
            offset = self.offset
            self.offset += length
            tally.lines += 1
            try:
                value = loads(data)
            except orjson.JSONDecodeError:
                if data.isspace() or not data or data == b"\xef\xbb\xbf\n":
                    tally.hide("blank")
                    continue
            else:
                if type(value) is dict:
                    yield new(Row, (value, self.line, offset, length, data, False, ()))
                    continue
            file, report, is_record = self._file, self._report, self._is_record
            yield from _odd_line(self.line, offset, data, file, tally, report, is_record)

    def _pass_over(self, length: int) -> None:
        self.line += 1
        offset, self.offset = self.offset, self.offset + length
        self._tally.lines += 1
        self._tally.damaged += 1
        self._report(_oversize(self._file, self.line, offset, length, self._cap))


def _oversize(file: str, line: int, offset: int, length: int, cap: int) -> Finding:
    message = f"the line has {length} bytes, the limit is {cap}"
    return Finding("oversize", file, message, line, offset, length)


def _odd_line(
    number: int,
    offset: int,
    data: bytes,
    file: str,
    tally: Tally,
    report: Callable[[Finding], None],
    is_record: Callable[[Any], bool] | None,
) -> Iterator[Row]:
    found = salvage(data, is_record)
    objects = [entry for entry in found.values if isinstance(entry[0], dict)]
    finding, message = found.finding, found.message
    if finding is None and len(objects) == 1:
        value, begin, length = objects[0]
        yield Row(value, number, offset + begin, length, data, salvaged=False, lossy=found.lossy)
        return
    if finding is None:
        finding, message = "not-an-object", "the line is JSON, but no object"
    elif not data.endswith(b"\n") and not objects and finding in ("bad-json", "bad-utf8"):
        finding, message = "torn-tail", "the last line is incomplete"
    tally.damaged += 1
    tally.recovered += len(objects)
    report(Finding(finding, file, message, number, offset, len(data)))
    for value, begin, length in objects:
        raw = data[begin : begin + length]
        yield Row(value, number, offset + begin, length, raw, salvaged=True, lossy=found.lossy)
