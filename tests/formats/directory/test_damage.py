"""Damage at every byte of a log: what is lost, what is said, and what the next writer does.

Nothing is sampled: each test goes through every offset of three logs that the product wrote.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from log_oracle import Expected, content, expected_lines

from agentsdir.formats.errors import Invalid
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.log import read_log

pytestmark = pytest.mark.feature("S-04")

GOLDEN = pytest.mark.parametrize("golden_log", ["whole", "stub", "tail"], indirect=True)
ORDER = ("seq-gap", "chain-break")  # remarks about a record's place, not about its bytes


def flip(data: bytes, at: int) -> bytes:
    """Flip one bit, another one from byte to byte."""
    return data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def zero(data: bytes, at: int, length: int) -> bytes:
    """Overwrite bytes with NULs, as a file system does that lost a page."""
    return data[:at] + bytes(len(data[at : at + length])) + data[at + length :]


# name → what happens at a byte, and how many bytes it touches
DAMAGE: dict[str, tuple[Callable[[bytes, int], bytes], Callable[[int], int]]] = {
    "a flipped bit": (flip, lambda at: 1),
    "a zero": (lambda data, at: zero(data, at, 1), lambda at: 1),
    "a run of zeros": (lambda data, at: zero(data, at, at % 15 + 2), lambda at: at % 15 + 2),
    "a line feed too many": (lambda data, at: data[:at] + b"\n" + data[at:], lambda at: 1),
    "a NUL too many": (lambda data, at: data[:at] + b"\0" + data[at:], lambda at: 1),
    "a brace too many": (lambda data, at: data[:at] + b"{" + data[at:], lambda at: 1),
    "a letter too many": (lambda data, at: data[:at] + b"x" + data[at:], lambda at: 1),
    "no UTF-8": (lambda data, at: data[:at] + b"\xff" + data[at:], lambda at: 1),
    "a byte too few": (lambda data, at: data[:at] + data[at + 1 :], lambda at: 1),
}


def check(data: bytes) -> list[Expected]:
    """Read a log and hold it to the oracle; return what the oracle says."""
    wanted = expected_lines(data)
    lines = list(read_log(io.BytesIO(data), "log"))
    assert len(lines) == len(wanted)
    accounted = 0
    for number, (line, expected) in enumerate(zip(lines, wanted, strict=True), 1):
        found = tuple(finding.id for finding in line.findings)
        record = line.record and tuple(line.record)
        assert (line.number, line.offset, line.length) == (number, *expected[:2])
        assert (record, found) == expected[2:]
        if not found or found[0] in ORDER:
            accounted += line.length
        for finding in line.findings:
            assert (finding.line, finding.offset, finding.length) == (number, *expected[:2])
            accounted += 0 if finding.id in ORDER else line.length
    assert accounted == len(data)  # every byte is in a good record, or in a range that is named
    return wanted


def untouched(golden: list[Expected], at: int, length: int) -> Iterator[Any]:
    """Yield the records of the lines that damage leaves alone; a lost LF touches two of them."""
    begin = end = 0
    for line in golden:
        begin, end = end, end + line.length
        if line.record and (end < at or at + length <= begin - 1):
            yield line.record


@GOLDEN
def test_a_log_cut_at_any_byte_is_its_whole_records_and_one_torn_tail(golden_log: Any) -> None:
    """Nothing that stands before the cut is lost, and the rest is named with its place."""
    data = golden_log.log.read_bytes()
    golden = check(data)
    for at in range(len(data)):
        cut = check(data[:at])
        whole = [line for line in golden if line.offset + line.length <= at]
        assert [line.record for line in cut if line.record] == [
            line.record for line in whole if line.record
        ], at


@GOLDEN
@pytest.mark.parametrize(("damage", "reach"), DAMAGE.values(), ids=DAMAGE)
def test_damage_at_any_byte_costs_the_records_that_it_touches_and_no_others(
    golden_log: Any, damage: Callable[[bytes, int], bytes], reach: Callable[[int], int]
) -> None:
    """The reader says what the oracle says, and every line left alone gives its record."""
    data = golden_log.log.read_bytes()
    golden = expected_lines(data)
    for at in range(len(data)):
        records = [line.record for line in check(damage(data, at)) if line.record]
        for record in untouched(golden, at, reach(at)):
            assert record in records, at


def append(paths: Any, data: bytes, more: int = 0) -> bytes | None:
    """Put `data` in a log's place, append to it, and return the log; None for a refusal."""
    paths.log.write_bytes(data)
    paths.state.unlink(missing_ok=True)  # it would remember what is gone, which is another test
    try:
        for records in (1, more) if more else (1,):
            with write_agent(paths) as writer:
                for _ in range(records):
                    writer.append(*NEW)
    except Invalid:
        assert paths.log.read_bytes() == data
        return None
    after: bytes = paths.log.read_bytes()
    return after


NEW = ("hook.failed", {"hook": "é", "message": "new"}, "2026-01-02T03:04:05.000000Z")


def check_append(data: bytes, after: bytes, records: int = 1) -> None:
    """Hold a log that was damaged and then appended to to what SPEC.md says of a writer."""
    tail = data[data.rfind(b"\n") + 1 :]
    # What lacks nothing but its LF gets it; a stub is set apart for good.
    stood = data if not tail else data + (b"\n" if content(tail)[0] else b" \n")
    assert after.startswith(stood)
    assert after.count(b"\n") == stood.count(b"\n") + records
    before, lines = expected_lines(data), check(after)
    old, new = lines[:-records], lines[-records:]
    assert len(old) == len(before)
    # A tail that lost only its LF is a record again; all other records are as they were.
    kept = [line.record for line in before if line.record]
    assert [line.record for line in old if line.record][: len(kept)] == kept
    last, lost = None, 0
    for line in old:
        if line.record:
            last, lost = line.record[0], 0
        elif not after[: line.offset + line.length].endswith(b" \n"):
            lost += 1
    for number, line in enumerate(new, 1):
        assert line.record
        assert line.record[2:5:2] == NEW[:2]
        if last is not None:
            assert line.record[0] == last + lost + number
        # The number of the record after them shows complete lines that were lost.
        assert line.findings == (("seq-gap",) if lost and number == 1 else ())


@GOLDEN
def test_a_log_cut_at_any_byte_takes_the_next_record_on_a_line_of_its_own(golden_log: Any) -> None:
    """The old bytes stand, and what was torn is isolated and called so."""
    data = golden_log.log.read_bytes()
    first = data.index(b"\n")
    for at in range(len(data)):
        after = append(golden_log, data[:at])
        assert (after is not None) == (at >= first), at
        if after is not None:
            check_append(data[:at], after)


@pytest.mark.parametrize("golden_log", ["tail"], indirect=True)
def test_writing_goes_on_after_a_cut_at_any_byte(golden_log: Any) -> None:
    """Ten more records of the next writer are all read back, and the short cut agrees."""
    data = golden_log.log.read_bytes()
    for at in range(data.index(b"\n"), len(data)):
        after = append(golden_log, data[:at], more=10)
        assert after is not None
        check_append(data[:at], after, 11)
    assert read_agent(golden_log).state == read_agent(golden_log, whole=True).state


@GOLDEN
def test_a_log_damaged_at_any_byte_takes_the_next_record_on_a_line_of_its_own(
    golden_log: Any,
) -> None:
    """Each kind of damage in turn: no old byte is changed, and the new record is read back."""
    data = golden_log.log.read_bytes()
    first = data.index(b"\n")
    kinds = [damage for damage, _ in DAMAGE.values()]
    for at in range(len(data)):
        damaged = kinds[at % len(kinds)](data, at)
        after = append(golden_log, damaged)
        assert after is not None or at <= first, at
        if after is not None:
            check_append(damaged, after)
