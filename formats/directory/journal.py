"""Appending to events.jsonl: one write, fsync, then acknowledge (decisions D1 to D3).

The caller holds the agent's `.lock`. Nothing here ever rewrites a byte that stands in the log.
"""

from __future__ import annotations

import os
from typing import Any

from agentsdir.formats.directory.durability import Disk
from agentsdir.formats.directory.layout import open_plain
from agentsdir.formats.directory.log import Position, decode_line
from agentsdir.formats.directory.records import NO_LINE, Record, encode_record, line_hash
from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.reading.lines import LINE_CAP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


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
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        previous, prefix = position.last_hash, b""
        if size > position.size:
            previous, prefix = _hash_of_tail(descriptor, position.size, size), b"\n"
        record = Record(position.next_seq, ts, event, session_id, data, previous)
        line = encode_line(record)
        _write_whole(descriptor, prefix + line, size, path)
        disk.sync_append(descriptor, path)
    finally:
        os.close(descriptor)
    lines = position.lines + len(prefix) + 1
    return record, Position(size + len(prefix) + len(line), record.seq, line_hash(line), 0, lines)


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
    descriptor = open_plain(path, os.O_RDWR | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        if size - position.size > LINE_CAP:
            return False
        tail = os.pread(descriptor, size - position.size, position.size)
        if not tail or tail.endswith(b"\n") or decode_line(tail, "", 0, 0)[0] is None:
            return False
        _write_whole(descriptor, b"\n", size, path)
        disk.sync_append(descriptor, path)
    finally:
        os.close(descriptor)
    return True


def _hash_of_tail(descriptor: int, start: int, size: int) -> str:
    """Return what `prev` says of a torn tail; one too long to be read counts as no line."""
    if size - start > LINE_CAP:
        return NO_LINE
    return line_hash(os.pread(descriptor, size - start, start))


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
