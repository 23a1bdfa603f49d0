"""Reading events.jsonl: never stopping at a bad line, never hiding one (SPEC.md, "Damage").

Readers take no lock. An unterminated last line belongs to a writer at work or to one that died;
it is handed out as a `torn-tail` finding, is no record, and counts in no sequence.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from agentsdir.formats import jsontext
from agentsdir.formats.directory.layout import open_plain
from agentsdir.formats.directory.records import NO_LINE, STUB_END, as_record, line_hash
from agentsdir.formats.reading.findings import Finding
from agentsdir.formats.reading.lines import LINE_CAP, read_lines
from agentsdir.formats.reading.salvage import salvage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.formats.directory.records import Record


# How many unreadable lines in a row are held back before they are called damage.
MAX_WAITING = 1000
_TAIL = 4 * 1024  # as most records fit in


class Position(NamedTuple):
    """How far a log has been read: what the next append and the next fold start from.

    `size` is the byte after the last complete line; `last_hash` the hash of that line;
    `unreadable` counts complete lines without a record since `last_seq` that may have held one;
    `lines` counts all complete ones.
    """

    size: int = 0
    last_seq: int = 0
    last_hash: str = NO_LINE
    unreadable: int = 0
    lines: int = 0

    @property
    def next_seq(self) -> int:
        """The number of the next record (decision D2)."""
        return self.last_seq + 1 + self.unreadable


class LogLine(NamedTuple):
    """One physical line: its record or None, what is wrong with it, and the position after it."""

    record: Record | None
    findings: tuple[Finding, ...]
    number: int
    offset: int
    length: int
    after: Position


def flaw(
    kind: str,
    file: str,
    line: int | None,
    offset: int | None,
    length: int | None,
    message: str,
) -> Finding:
    """Return what is wrong with a line; most logs have no such line."""
    return Finding(kind, file, line, offset, length, message)


def open_log(path: Path, start: int = 0) -> BinaryIO:
    """Open a log for reading at byte `start`. Raises as `open_plain` does."""
    stream = os.fdopen(open_plain(path), "rb")
    stream.seek(start)
    return stream


def read_records(path: Path, start: Position | None = None) -> Iterator[Record]:
    """Yield the records of a log after `start`, passing over what is none.

    Raises as `open_plain` does.
    """
    with open_log(path, start.size if start else 0) as stream:
        for line in read_log(stream, str(path), start):
            if line.record is not None:
                yield line.record


def read_log(
    stream: BinaryIO, file: str, start: Position | None = None, *, cap: int = LINE_CAP
) -> Iterator[LogLine]:
    """Yield every physical line from where `stream` stands, which is `start`.

    An unterminated last line comes with a `torn-tail` finding and leaves the position as it was;
    whether it is damage depends on whether a writer is alive, which the caller knows.
    """
    here = start or Position()
    base, first = here.size, here.lines
    # Complete lines without a record: what they are shows only when the next record comes.
    waiting: list[LogLine] = []
    for number, offset, length, data in read_lines(stream, cap=cap):
        number += first
        at = base + offset
        end = data or _last_bytes(stream, at + length)
        if not end.endswith(b"\n"):
            yield from waiting
            torn = flaw("torn-tail", file, number, at, length, "the last line is incomplete")
            yield LogLine(None, (torn,), number, at, length, here)
            return
        if data is not None:
            record, findings = decode_line(data, file, number, at)
            line = line_hash(data)
        else:
            message = f"the line has {length} bytes, the limit is {cap}"
            record, findings = None, (flaw("oversize", file, number, at, length, message),)
            line = NO_LINE
        if record is None:
            # A stub that a writer has set apart was never acknowledged, and has no number.
            apart = end.endswith(STUB_END)
            here = Position(at + length, here.last_seq, line, here.unreadable + (not apart), number)
            unread = LogLine(None, findings, number, at, length, here)
            waiting.append(_stub(unread) if apart else unread)
            if len(waiting) < MAX_WAITING:
                continue
        yield from map(_stub, waiting) if record and record.seq == here.last_seq + 1 else waiting
        waiting = []
        if record is not None:
            findings += _check_order(record, here, file, number, at, length)
            here = Position(at + length, record.seq, line, 0, number)
            yield LogLine(record, findings, number, at, length, here)
    yield from waiting


def ends_at(stream: BinaryIO, position: Position) -> bool:
    """Tell whether the log really has at `position` the line that it speaks of.

    state.json may be stale, damaged or edited; what is appended after it would be so for ever.
    """
    size = stream.seek(0, os.SEEK_END)
    if not 0 < position.size <= size or position.size > 2**62:
        return False
    start = position.size - 1
    line = b""
    while start and b"\n" not in line[:-1]:
        length = min(start, max(_TAIL, len(line)))
        start -= length
        stream.seek(start)
        line = stream.read(position.size - start)
        if len(line) > LINE_CAP:
            return False
    line = line[line[:-1].rfind(b"\n") + 1 :]
    if not line.endswith(b"\n") or line_hash(line) != position.last_hash:
        return False
    if position.unreadable or line.endswith(STUB_END):
        return True
    record = decode_line(line, "", 0, 0)[0]
    return record is not None and record.seq == position.last_seq


def _last_bytes(stream: BinaryIO, end: int) -> bytes:
    """Return how a line ends that was too long to be kept."""
    here = stream.tell()
    stream.seek(end - len(STUB_END))
    last = stream.read(len(STUB_END))
    stream.seek(here)
    return last


def _stub(line: LogLine) -> LogLine:
    """Say of an unreadable line that nothing was lost with it (D2)."""
    finding = line.findings[0]
    if finding.id == "stub":
        return line
    message = f"a write that was never acknowledged: {finding.message}"
    return line._replace(findings=(finding._replace(id="stub", message=message),))


def decode_line(
    data: bytes, file: str, number: int, at: int
) -> tuple[Record | None, tuple[Finding, ...]]:
    """Return the record that a line holds, or None, and what is wrong with the line."""
    try:
        return _decode(data, file, number, at)
    except MemoryError:
        message = "the line holds more values than there is memory for"
        return None, (flaw("oversize", file, number, at, len(data), message),)


def _decode(
    data: bytes, file: str, number: int, at: int
) -> tuple[Record | None, tuple[Finding, ...]]:
    try:
        record = as_record(jsontext.decode(data))
    except jsontext.JSONDecodeError:
        found = salvage(data)
        records = [r for r in (as_record(value) for value, _, _ in found.values) if r is not None]
        kind = found.finding or "bad-json"
        if kind == "splice" and not records:
            kind = "bad-json"  # what else stands whole on the line is a part of a record
        if found.finding is None:
            records = []  # JSON to the lenient only; it would not come back as it is
        finding = flaw(kind, file, number, at, len(data), found.message or "not JSON")
        # Two records on one line cannot both be followed by the next one: take neither on trust.
        return (records[-1] if len(records) == 1 else None), (finding,)
    if record is None:
        message = "the line is JSON, but no event record"
        return None, (flaw("not-a-record", file, number, at, len(data), message),)
    return record, ()


def _check_order(
    record: Record, here: Position, file: str, number: int, at: int, length: int
) -> tuple[Finding, ...]:
    found: list[Finding] = []
    lost = record.seq - here.last_seq - 1
    if lost:
        message = (
            f"acknowledged records lost before seq {record.seq}: {lost}"
            if lost > 0
            else f"seq {record.seq} follows seq {here.last_seq}"
        )
        found.append(flaw("seq-gap", file, number, at, length, message))
    if record.prev != here.last_hash:
        message = f"prev says {record.prev}, the line before has {here.last_hash}"
        found.append(flaw("chain-break", file, number, at, length, message))
    return tuple(found)
