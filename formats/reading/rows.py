"""Physical lines to decoded rows, with every line accounted for (docs/reading.md, "Accounting")."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import orjson

from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.lines import LINE_CAP, skip_line
from agentsdir.formats.reading.salvage import salvage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.formats.reading.blocks import BlockSource


# Stands for the value of a line that says nothing (`read_rows`); no JSON text means it.
NOTHING = object()


class Row(NamedTuple):
    """One JSON value of a transcript and where it stands.

    `raw` is the physical line (LF included); of a `salvaged` row, the record's own bytes, which a
    repair would leave as they are. Such rows stood on a damaged line, which the reader has
    already counted; everybody else's line must be settled on the `Tally` once.
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
) -> Iterator[Row]:
    """Yield every record of a JSON Lines transcript, salvaged ones included.

    `is_record` tells a record of the format from an object within one (`salvage`); `loads` may
    know a cheaper way to a value that stands in a line than to decode it, and returns `NOTHING`
    for a line that is to be settled as folded, for the reason `unread`, and passed over.

    Blank lines are settled as hidden and damaged ones as damaged here; `report` is called with
    each finding. Never raises for what the bytes hold.
    """
    # What `Row(…)` does, without the Python call around it: this runs once per line.
    new = tuple.__new__
    offset = length = 0
    for number, data in enumerate(iter(partial(stream.readline, cap), b""), 1):
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

    def rows(self, data: bytes) -> Iterator[Row]:
        """Yield the records of the next line, which has its LF unless it is the last one."""
        if len(data) > self._cap:
            self.pass_over(len(data))
            return
        self.line += 1
        offset, self.offset = self.offset, self.offset + len(data)
        self._tally.lines += 1
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            if data.isspace() or not data or data == b"\xef\xbb\xbf\n":
                self._tally.hide("blank")
                return
        else:
            if type(value) is dict:
                yield Row(value, self.line, offset, len(data), data, salvaged=False, lossy=())
                return
        file, tally, report = self._file, self._tally, self._report
        yield from _odd_line(self.line, offset, data, file, tally, report, self._is_record)

    def pass_over(self, length: int) -> None:
        """Note a line of `length` bytes that is longer than a reader takes."""
        self.line += 1
        offset, self.offset = self.offset, self.offset + length
        self._tally.lines += 1
        self._tally.damaged += 1
        self._report(_oversize(self._file, self.line, offset, length, self._cap))


def _oversize(file: str, line: int, offset: int, length: int, cap: int) -> Finding:
    message = f"the line has {length} bytes, the limit is {cap}"
    return Finding("oversize", file, line, offset, length, message)


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
    report(Finding(finding, file, number, offset, len(data), message))
    for value, begin, length in objects:
        raw = data[begin : begin + length]
        yield Row(value, number, offset + begin, length, raw, salvaged=True, lossy=found.lossy)
