"""events.jsonl: its records, reading them, and appending to them (SPEC.md, "The log")."""

from __future__ import annotations

import os
import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from agentsdir.formats import jsontext, times
from agentsdir.formats.errors import Invalid, NotRecorded, UsageError
from agentsdir.formats.findings import Finding
from agentsdir.formats.ids import short_hash
from agentsdir.formats.rows import LINE_CAP, salvage, skip_line
from agentsdir.formats.store.layout import open_plain
from agentsdir.schemas.rfc3339 import is_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from agentsdir.formats.store.files import Disk


# The records of events.jsonl (decision D1; SPEC.md, "Events").
#
# One line each: ``{"seq","ts","event","session_id","data","prev"}``. `prev` is the first 16 hex
# digits of the SHA-256 of the physical line before it, as it stood, without its LF; the first
# record has sixteen zeros.

NO_LINE = "0" * 16

STUB_END = b" \n"
"""What a writer puts after a torn tail. No record ends so: such a line was never acknowledged."""


class Record(NamedTuple):
    """One readable record of the log."""

    seq: int
    ts: str
    event: str
    session_id: str
    data: dict[str, Any]
    prev: str


_fields_of = itemgetter(*Record._fields)


def line_hash(line: bytes) -> str:
    """Return what the next record's `prev` says of this physical line (LF excluded)."""
    return short_hash(line.removesuffix(b"\n"))


def encode_record(record: Record) -> bytes:
    """Return the record as one line, LF included. Raises `Invalid` for values that would change."""
    seq, ts, event, session_id, data, prev = record
    return jsontext.encode_line(
        {
            "seq": seq,
            "ts": ts,
            "event": event,
            "session_id": session_id,
            "data": data,
            "prev": prev,
        }
    )


def as_record(value: Any) -> Record | None:
    """Return a decoded line as a record, or None when it is none."""
    try:
        seq, ts, event, session, data, prev = _fields_of(value)
    except (KeyError, TypeError):
        return None
    if (
        type(seq) is int
        and 0 < seq <= jsontext.MAX_INT
        and type(ts) is type(event) is type(session) is type(prev) is str
        and type(data) is dict
    ):
        return Record(seq, ts, event, session, data, prev)
    return None


# Reading events.jsonl: never stopping at a bad line, never hiding one (SPEC.md, "Damage").
#
# Readers take no lock. An unterminated last line belongs to a writer at work or to one that died;
# it is handed out as a `torn-tail` finding, is no record, and counts in no sequence.

# How many unreadable lines in a row are held back before they are called damage.
MAX_WAITING = 1000
_BUFFER = 64 * 1024
_TAIL = 4 * 1024  # as most records fit in
_BAD_BYTE = re.compile("[\udc80-\udcff]")  # as `surrogateescape` decodes it


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
    """One physical line: its record or None, what is wrong with it, and the position after it.

    `data` are the bytes of a line with a record, LF included.
    """

    record: Record | None
    findings: tuple[Finding, ...]
    number: int
    offset: int
    length: int
    after: Position
    data: bytes = b""


def open_log(path: Path, start: int = 0) -> BinaryIO:
    """Open a log for reading at byte `start`. Raises as `open_plain` does."""
    stream = os.fdopen(open_plain(path), "rb", buffering=_BUFFER)
    stream.seek(start)
    return stream


def read_records(
    path: Path, start: Position | None = None, *, end: int | None = None
) -> Iterator[Record]:
    """Yield the records of a log after `start`, passing over what is none.

    Args:
        end: the byte after the last record that is wanted.

    Raises as `open_plain` does.
    """
    with open_log(path, start.size if start else 0) as stream:
        for line in read_log(stream, str(path), start):
            if end is not None and line.after.size > end:
                return
            if line.record is not None:
                yield line.record


def find_records(path: Path, text: bytes, start: int) -> Iterator[tuple[Record, int]]:
    """Yield the records whose lines may have a text of ASCII, each with the byte after its line.

    Other lines are not decoded. Raises as `open_plain` does.

    Args:
        start: the byte at which a line begins, to read on from.
    """
    with open_log(path, start) as stream:
        while (line := stream.readline(LINE_CAP)).endswith(b"\n") or len(line) == LINE_CAP:
            start += len(line)
            if not line.endswith(b"\n"):
                start += skip_line(stream, line, LINE_CAP)
            elif text in line or b"\\u" in line:  # it may be written in escapes
                record, _ = decode_line(line, str(path), 0, 0)
                if record is not None:
                    yield record, start


def read_log(
    stream: BinaryIO, file: str, start: Position | None = None, *, cap: int = LINE_CAP
) -> Iterator[LogLine]:
    """Yield every physical line from where `stream` stands, which is `start`.

    An unterminated last line comes with a `torn-tail` finding and leaves the position as it was;
    whether it is damage depends on whether a writer is alive, which the caller knows.
    """
    here = start or Position()
    at, number = here.size, here.lines
    length = 0
    # Complete lines without a record: what they are shows only when the next record comes.
    waiting: list[LogLine] = []
    while begun := stream.readline(cap):
        number += 1
        at += length
        rest = skip_line(stream, begun, cap) if len(begun) == cap else 0
        length = len(begun) + rest
        end = _last_bytes(stream, at + length) if rest else begun
        if not end.endswith(b"\n"):
            yield from waiting
            torn = Finding("torn-tail", file, "the last line is incomplete", number, at, length)
            yield LogLine(None, (torn,), number, at, length, here)
            return
        if not rest:
            record, findings = decode_line(begun, file, number, at)
            line = line_hash(begun)
        else:
            message = f"the line has {length} bytes, the limit is {cap}"
            record, findings = None, (Finding("oversize", file, message, number, at, length),)
            line = NO_LINE
        if record is None:
            # A stub that a writer has set apart was never acknowledged, and has no number.
            apart = end.endswith(STUB_END)
            here = Position(at + length, here.last_seq, line, here.unreadable + (not apart), number)
            unread = LogLine(None, findings, number, at, length, here)
            waiting.append(_stub(unread) if apart else unread)
            if len(waiting) < MAX_WAITING:
                continue
        if waiting:
            follows = record is not None and record.seq == here.last_seq + 1
            yield from map(_stub, waiting) if follows else waiting
            waiting = []
        if record is not None:
            if record.seq != here.last_seq + 1 or record.prev != here.last_hash:
                findings += _check_order(record, here, file, number, at, length)
            here = Position(at + length, record.seq, line, 0, number)
            yield LogLine(record, findings, number, at, length, here, begun)
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
        return None, (Finding("oversize", file, message, number, at, len(data)),)


def _decode(
    data: bytes, file: str, number: int, at: int
) -> tuple[Record | None, tuple[Finding, ...]]:
    try:
        record = as_record(jsontext.decode(data))
    except jsontext.JSONDecodeError:
        found = salvage(data)
        parts = (data[begin : begin + length] for _, begin, length in found.values)
        records = [r for r in map(_strict_record, parts) if r is not None]
        kind = found.finding or "bad-json"
        if kind == "splice" and not records:
            kind = "bad-json"  # what else stands whole on the line is a part of a record
        if found.finding is None:
            records = []  # JSON to the lenient only; it would not come back as it is
        message = found.message if kind == found.finding else "not JSON"
        finding = Finding(kind, file, message, number, at, len(data))
        # Two records on one line cannot both be followed by the next one: take neither on trust.
        return (records[-1] if len(records) == 1 else None), (finding,)
    if record is None:
        message = "the line is JSON, but no event record"
        return None, (Finding("not-a-record", file, message, number, at, len(data)),)
    return record, ()


def _strict_record(part: bytes) -> Record | None:
    """Return the record that a part of a damaged line is, read as strictly as a whole line.

    Each byte that is no UTF-8 is U+FFFD.
    """
    text = _BAD_BYTE.sub("\ufffd", part.decode(errors="surrogateescape"))
    try:
        return as_record(jsontext.decode(text))
    except jsontext.JSONDecodeError:
        return None


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
        found.append(Finding("seq-gap", file, message, number, at, length))
    if record.prev != here.last_hash:
        message = f"prev says {record.prev}, the line before has {here.last_hash}"
        found.append(Finding("chain-break", file, message, number, at, length))
    return tuple(found)


# Appending to events.jsonl: one write, fsync, then acknowledge (decisions D1 to D3).
#
# The caller holds the agent's `.lock`. Nothing here ever rewrites a byte that stands in the log.


def append_record(
    path: Path,
    position: Position,
    event: str,
    data: dict[str, Any],
    ts: str,
    session_id: str,
    disk: Disk,
) -> tuple[Record, Position]:
    """Append one event durably; return it and the position after it.

    Args:
        position: where the last complete line ends, as the fold found it under this lock. Bytes
            beyond it are a torn tail, which gets its own line and its own hash.
        disk: says what durable means.

    Raises `NotRecorded` (the log is as before), `Uncertain` (only the fsync failed), `Invalid` for
    data that would not round-trip, or that no reader would take back.
    """
    log = OpenLog(path, disk)
    try:
        record, _, after = log.append(position, event, data, ts, session_id)
        return record, after
    finally:
        log.close()


class OpenLog:
    """A log that is open for appending, while its `.lock` is held. Raises as `open_plain` does."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._descriptor = open_plain(path, os.O_RDWR | os.O_APPEND)

    def append(
        self, position: Position, event: str, data: dict[str, Any], ts: str, session_id: str
    ) -> tuple[Record, int, Position]:
        """Append one event (arguments and errors of `append_record`).

        Returns it, the byte at which its line begins, and the position after it.
        """
        descriptor, path = self._descriptor, self._path
        size = os.lseek(descriptor, 0, os.SEEK_END)
        previous, prefix = position.last_hash, b""
        if size > position.size:
            previous, prefix = _hash_of_tail(descriptor, position.size, size), STUB_END
        record = Record(position.next_seq, ts, event, session_id, data, previous)
        line = encode_line(record)
        _write_whole(descriptor, prefix + line, size, path)
        self._disk.sync_append(descriptor, path)
        begins = size + len(prefix)
        return (
            record,
            begins,
            Position(
                begins + len(line),
                record.seq,
                line_hash(line),
                0,
                position.lines + bool(prefix) + 1,
            ),
        )

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def encode_line(record: Record) -> bytes:
    """Return a record's line. Raises `Invalid` for what no reader would take back as it is."""
    line = encode_record(record)
    if len(line) > LINE_CAP:
        message = f"a {record.event} record of {len(line)} bytes is over the limit of {LINE_CAP}"
        raise Invalid(message, kind="too-large")
    return line


def end_whole_tail(path: Path, position: Position, disk: Disk) -> bool:
    """Give an unterminated tail that is a record its LF; tell whether it was one.

    Only its LF was lost, so it would become a record with the next append, and must be folded
    before that. Raises as `append_record` does.
    """
    if not tail_is_record(path, position):
        return False
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND)
    try:
        _write_whole(descriptor, b"\n", os.fstat(descriptor).st_size, path)
        disk.sync_append(descriptor, path)
    finally:
        os.close(descriptor)
    return True


def tail_is_record(path: Path, position: Position) -> bool:
    """Tell whether what stands after the last complete line is a record that lacks only its LF."""
    descriptor = open_plain(path)
    try:
        size = os.fstat(descriptor).st_size
        if size - position.size >= LINE_CAP:
            return False
        tail = os.pread(descriptor, size - position.size, position.size)
    finally:
        os.close(descriptor)
    return not tail.endswith(b"\n") and decode_line(tail, "", 0, 0)[0] is not None


def _hash_of_tail(descriptor: int, start: int, size: int) -> str:
    """Return what `prev` says of a torn tail once it is a line; one too long counts as none."""
    if size - start + len(STUB_END) > LINE_CAP:
        return NO_LINE
    return line_hash(os.pread(descriptor, size - start, start) + STUB_END)


def _write_whole(descriptor: int, data: bytes, size: int, path: Path) -> None:
    """Write all of `data` or leave the file at `size` bytes."""
    reason = "the disk took only a part"
    try:
        # A short write means the disk is full or a limit is reached; the rest would fail too.
        if os.write(descriptor, data) == len(data):
            return
    except OSError as error:
        reason = error.strerror or str(error)
    try:
        os.ftruncate(descriptor, size)
    except OSError as error:
        raise NotRecorded(
            f"cannot append to {path}: {reason}; nor cut off the stub: {error.strerror}",
            hint="the next append isolates the stub; nothing acknowledged is affected",
        ) from error
    raise NotRecorded(f"cannot append to {path}: {reason}")


# A place in a log, up to which it is read (docs/commands.md, "Replay").

_FAR = 18  # digits; no log has as many records


class Cursor(NamedTuple):
    """Where reading stops: at the end, after a sequence number, or before what is later.

    Order is file order. Numbers may be missing and clocks jump, so the first record decides that
    has the number or a higher one, or a later time; what follows it is not looked at.
    """

    seq: int | None = None
    moment: datetime | None = None

    def is_passed_by(self, line: LogLine) -> bool:
        """Tell whether a line is the first beyond the cursor."""
        if self.moment is None or line.record is None:
            return False
        moment = _moment(line.record.ts)
        # A foreign writer's text that is no time does not end the reading.
        return moment is not None and moment > self.moment

    def is_reached_by(self, line: LogLine) -> bool:
        """Tell whether a line is the last one to be read."""
        return self.seq is not None and line.record is not None and line.record.seq >= self.seq


END = Cursor()


def parse_cursor(text: str) -> Cursor:
    """Return the cursor that a sequence number or an RFC 3339 time names. Raises `UsageError`."""
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        if not digits:
            raise UsageError("the records of a log are numbered from 1")
        return Cursor(seq=int(digits) if len(digits) <= _FAR else 10**_FAR)
    if (moment := _moment(text)) is not None:
        return Cursor(moment=moment)
    raise UsageError(
        f"{text!r} is neither the number of a record nor a time",
        hint="a time is RFC 3339, such as 2026-01-02T03:04:05Z",
    )


def _moment(text: str) -> datetime | None:
    if not is_rfc3339(text):
        return None
    try:
        return times.from_text(text.upper())
    except (OverflowError, ValueError):  # a leap second, or a day that UTC does not have
        return None
