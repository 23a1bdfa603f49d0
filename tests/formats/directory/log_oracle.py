"""What a damaged log must read as, said a second time from SPEC.md, "The log" and "Damage".

Slow, simple, and independent of the product: it imports nothing of it.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any, NamedTuple

FIELDS = {"ts": str, "event": str, "session_id": str, "data": dict, "prev": str}


class Expected(NamedTuple):
    """One physical line: where it stands, its record as six values or None, the finding ids."""

    offset: int
    length: int
    record: tuple[Any, ...] | None
    findings: tuple[str, ...]


def expected_lines(data: bytes) -> list[Expected]:
    """Return what SPEC.md says of every physical line of a log, the unterminated one included."""
    found: list[Expected] = []
    unreadable: list[int] = []  # indices of lines that the next record may show to be stubs
    offset, last_seq, last_hash = 0, 0, "0" * 16
    lines = data.split(b"\n")
    tail = lines.pop()
    for line in lines:
        record, findings = content(line)
        if record is None and line.endswith(b" "):
            findings = ("stub",)  # set apart by a writer
        elif record is None:
            unreadable.append(len(found))
        else:
            if record[0] == last_seq + 1:
                for index in unreadable:
                    found[index] = found[index]._replace(findings=("stub",))
            else:
                findings += ("seq-gap",)
            if record[-1] != last_hash:
                findings += ("chain-break",)
            last_seq, unreadable = record[0], []
        last_hash = hashlib.sha256(line).hexdigest()[:16]
        found.append(Expected(offset, len(line) + 1, record, findings))
        offset += len(line) + 1
    if tail:
        found.append(Expected(offset, len(tail), None, ("torn-tail",)))
    return found


@lru_cache(maxsize=512)
def content(line: bytes) -> tuple[tuple[Any, ...] | None, tuple[str, ...]]:
    """Return the record that a line (without its LF) holds, and what is wrong with the line."""
    try:
        value = strict(line.decode())
    except ValueError:
        pass
    else:
        record = as_record(value)
        return record, () if record else ("not-a-record",)
    records = whole_records(line)
    try:
        line.decode()
        kind = "nul-run" if b"\0" in line else "splice" if records else "bad-json"
    except UnicodeDecodeError:
        kind = "bad-utf8"
    # The next record can follow only one of two.
    return (records[0] if len(records) == 1 else None), (kind,)


def whole_records(line: bytes) -> list[tuple[Any, ...]]:
    """Return every record that stands whole on a line; bytes that are no UTF-8 become U+FFFD."""
    text = "".join(
        "\ufffd" if "\udc80" <= character <= "\udcff" else character
        for character in line.decode(errors="surrogateescape")
    )
    found = []
    for piece in text.split("\0"):
        at = piece.find("{")
        while at >= 0:
            end = at + 1
            try:
                value, end = DECODER.raw_decode(piece, at)
                record = as_record(value)
            except ValueError:
                record = None
            if record:
                found.append(record)
            at = piece.find("{", end if record else at + 1)
    return found


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(parse_constant=_no_number)


def strict(text: str) -> Any:
    """Return a JSON text's value. Raises `ValueError` for what is no JSON in UTF-8."""
    value = DECODER.decode(text)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def as_record(value: Any) -> tuple[Any, ...] | None:
    """Return the six values of a record, or None."""
    if not isinstance(value, dict) or type(value.get("seq")) is not int or value["seq"] < 1:
        return None
    if any(not isinstance(value.get(name), kind) for name, kind in FIELDS.items()):
        return None
    return (value["seq"], *(value[name] for name in FIELDS))
