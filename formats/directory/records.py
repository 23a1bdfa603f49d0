"""The records of events.jsonl (decision D1; SPEC.md, "Events").

One line each: ``{"seq","ts","event","session_id","data","prev"}``. `prev` is the first 16 hex
digits of the SHA-256 of the physical line before it, as it stood, without its LF; the first
record has sixteen zeros.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from agentsdir.formats import jsontext
from agentsdir.formats.digest import short_hash

NO_LINE = "0" * 16

STUB_END = b" \n"
"""What a writer puts after a torn tail. No record ends so: such a line was never acknowledged."""

EVENTS = (
    "session.created",
    "session.state",
    "message.enqueued",
    "message.delivered",
    "message.sent",
    "message.unsent",
    "message.resent",
    "turn.start",
    "block",
    "turn.complete",
    "turn.error",
    "turn.aborted",
    "abort.requested",
    "abort.cleared",
    "outgoing",
    "outgoing.delivered",
    "spawn.requested",
    "agent.spawned",
    "spawn.dropped",
    "history.reset",
    "native.changed",
    "transcript.synced",
    "workspace.captured",
    "profile.applied",
    "provider.fallback",
    "hook.failed",
    "agent.renamed",
    "agent.tagged",
    "agent.set",
    "restore",
)


class Record(NamedTuple):
    """One readable record of the log."""

    seq: int
    ts: str
    event: str
    session_id: str
    data: dict[str, Any]
    prev: str


def line_hash(line: bytes) -> str:
    """Return what the next record's `prev` says of this physical line (LF excluded)."""
    return short_hash(line.removesuffix(b"\n"))


def encode_record(record: Record) -> bytes:
    """Return the record as one line, LF included. Raises `Invalid` for values that would change."""
    return jsontext.encode(record._asdict()) + b"\n"


def as_record(value: Any) -> Record | None:
    """Return a decoded line as a record, or None when it is none."""
    if not isinstance(value, dict):
        return None
    seq, ts, event, prev = (value.get(name) for name in ("seq", "ts", "event", "prev"))
    session, data = value.get("session_id"), value.get("data")
    if (
        type(seq) is int
        and seq > 0
        and isinstance(ts, str)
        and isinstance(event, str)
        and isinstance(session, str)
        and isinstance(data, dict)
        and isinstance(prev, str)
    ):
        return Record(seq, ts, event, session, data, prev)
    return None
