"""Appending to events.jsonl: one write, fsync, then acknowledge (decisions D1 to D3).

The caller holds the agent's `.lock`. Nothing here ever rewrites a byte that stands in the log.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from agentsdir.formats.directory.layout import open_plain
from agentsdir.formats.directory.log import Position, decode_line
from agentsdir.formats.directory.records import (
    NO_LINE,
    STUB_END,
    Record,
    encode_record,
    line_hash,
)
from agentsdir.formats.errors import Invalid, NotRecorded
from agentsdir.formats.reading.lines import LINE_CAP

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.formats.directory.durability import Disk


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
            previous, prefix = _hash_of_tail(descriptor, position.size, size), STUB_END
        record = Record(position.next_seq, ts, event, session_id, data, previous)
        line = encode_line(record)
        _write_whole(descriptor, prefix + line, size, path)
        disk.sync_append(descriptor, path)
    finally:
        os.close(descriptor)
    lines = position.lines + bool(prefix) + 1
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
