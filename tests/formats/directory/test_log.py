"""The log: its bytes, its numbers, its chain, and what damage does to it."""

from __future__ import annotations

import io
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.formats.errors import Invalid
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.log import (
    NO_LINE,
    LogLine,
    Position,
    append_record,
    as_record,
    encode_record,
    line_hash,
    open_log,
    read_log,
)

GOLDEN = Path(__file__).parents[3] / "fixtures" / "golden"


def read(data: bytes, **options: Any) -> list[LogLine]:
    """Read a log from its start."""
    return list(read_log(io.BytesIO(data), "log", **options))


def kinds(data: bytes) -> list[str]:
    """Return the ids of all findings."""
    return [finding.id for line in read(data) for finding in line.findings]


def seqs(data: bytes) -> list[int]:
    """Return the numbers of the records."""
    return [line.record.seq for line in read(data) if line.record]


class Log:
    """A log on disk, appended to as by one writer after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(b"")

    @property
    def data(self) -> bytes:
        """Return all of it."""
        return self.path.read_bytes()

    def position(self) -> Position:
        """Return where a new writer finds the end."""
        lines = read(self.data)
        return lines[-1].after if lines else Position()

    def append(self, event: str = "history.reset", **data: Any) -> None:
        """Append one record from a fresh look."""
        append_record(
            self.path, self.position(), event, data, "2026-01-02T03:04:05Z", "0" * 32, Disk()
        )

    def add(self, raw: bytes) -> None:
        """Append raw bytes, as a foreign or dying writer does."""
        with self.path.open("ab") as stream:
            stream.write(raw)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a log of three records."""
    made = Log(tmp_path / "events.jsonl")
    for number in (1, 2, 3):
        made.append(n=number)
    return made


@pytest.mark.feature("S-04")
def test_the_log_of_a_known_history_is_the_golden_one(agents: Any) -> None:
    """Byte for byte: keys, order, spelling, hashes."""
    paths = agents.publish()
    agents.talk(paths, 2)
    assert paths.log.read_bytes() == (GOLDEN / "agent" / "events.jsonl").read_bytes()


def test_each_line_names_the_hash_of_the_line_before() -> None:
    """The first one names sixteen zeros; numbers begin at 1 and have no gap."""
    previous = "0" * 16
    for number, line in enumerate((GOLDEN / "agent" / "events.jsonl").read_bytes().splitlines(), 1):
        record = json.loads(line)
        assert list(record) == ["seq", "ts", "event", "session_id", "data", "prev"]
        assert (record["seq"], record["prev"]) == (number, previous)
        previous = sha256(line).hexdigest()[:16]


def test_a_record_survives_writing_and_reading(log: Log) -> None:
    """As the same six fields."""
    record = read(log.data)[1].record
    assert record is not None
    assert as_record(orjson.loads(encode_record(record))) == record


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 0},
        {"seq": -1},
        {"seq": "1"},
        {"seq": True},
        {"seq": 1.0},
        {"ts": None},
        {"event": 5},
        {"session_id": None},
        {"data": []},
        {"prev": None},
    ],
)
def test_a_line_with_a_field_of_another_type_is_no_record(log: Log, change: dict[str, Any]) -> None:
    """It is named, counted as unreadable, and the others are read."""
    lines = log.data.splitlines(keepends=True)
    lines[1] = orjson.dumps({**orjson.loads(lines[1]), **change}) + b"\n"
    data = b"".join(lines)
    assert seqs(data) == [1, 3]
    assert kinds(data)[0] == "not-a-record"


def test_fields_and_events_that_are_not_known_are_read_as_they_are(log: Log) -> None:
    """A newer program's records are records."""
    log.append("future.event", anything=[1, 2])
    line = orjson.loads(log.data.splitlines()[-1])
    assert as_record({**line, "extra": 1}) is not None
    assert kinds(log.data) == []


def test_an_append_after_a_torn_tail_gets_its_own_line_and_the_next_number(log: Log) -> None:
    """The stub is isolated, is named by the next record, and is no gap."""
    log.add(b'{"seq":4,"ts":"20')
    log.append(n=4)
    assert seqs(log.data) == [1, 2, 3, 4]
    assert kinds(log.data) == ["stub"]
    stub, record = log.data.splitlines()[3:]
    assert stub == b'{"seq":4,"ts":"20 '
    assert orjson.loads(record)["prev"] == line_hash(stub)


def test_a_write_that_tears_while_it_sets_a_torn_tail_apart_makes_no_loss_of_it(log: Log) -> None:
    """The first stub ends in SPACE LF, so that no reader takes it for a record that was lost."""
    for torn in (b'{"seq":4', b" ", b" \n", b'{"seq":4,"ts', b' \n{"seq'):
        log.add(torn)
    log.append(n=4)
    assert seqs(log.data) == [1, 2, 3, 4]
    assert set(kinds(log.data)) == {"stub"}


def test_two_stubs_one_after_the_other_are_two_lines_and_no_gap_of_two(log: Log) -> None:
    """Each was isolated by the record that came after it."""
    log.add(b'{"seq":4')
    log.append(n=4)
    log.add(b'{"seq":5,"x')
    log.append(n=5)
    assert seqs(log.data) == [1, 2, 3, 4, 5]
    assert kinds(log.data) == ["stub", "stub"]


def test_a_complete_unreadable_line_counts_as_one_record(log: Log) -> None:
    """It was acknowledged once, so its number is not given away again: that is a gap."""
    lines = log.data.splitlines(keepends=True)
    lines[2] = b"#" + lines[2][1:]
    log.path.write_bytes(b"".join(lines))
    log.append(n=4)
    assert seqs(log.data) == [1, 2, 4]
    assert kinds(log.data) == ["bad-json", "seq-gap"]


def test_a_missing_line_is_a_gap_and_a_break_of_the_chain(log: Log) -> None:
    """Both are said, at the record that comes after."""
    lines = log.data.splitlines(keepends=True)
    found = [f for line in read(lines[0] + lines[2]) for f in line.findings]
    assert [(f.id, f.line) for f in found] == [("seq-gap", 2), ("chain-break", 2)]
    assert "acknowledged records lost before seq 3: 1" in found[0].message


def test_a_repeated_line_is_named_twice_over(log: Log) -> None:
    """Its number and its chain are both wrong."""
    lines = log.data.splitlines(keepends=True)
    assert kinds(b"".join([*lines, lines[2]])) == ["seq-gap", "chain-break"]


def test_an_edited_record_is_found_by_the_one_after_it(log: Log) -> None:
    """Well-formed or not, its bytes are no longer those that were named."""
    assert kinds(log.data.replace(b'"n":2', b'"n":7')) == ["chain-break"]


def test_two_records_on_one_line_are_taken_for_none(log: Log) -> None:
    """The next record can follow only one of them."""
    lines = log.data.splitlines(keepends=True)
    data = lines[0] + lines[1].rstrip() + lines[2]
    assert seqs(data) == [1]
    assert kinds(data) == ["splice"]


def test_a_record_after_a_stub_on_one_line_is_recovered(log: Log) -> None:
    """A foreign writer that welds its line to a stub costs nothing but the stub."""
    lines = log.data.splitlines(keepends=True)
    data = lines[0] + lines[1][:-9] + lines[2]
    assert seqs(data) == [1, 3]
    assert "splice" in kinds(data)


def test_a_line_over_the_cap_is_passed_over_and_named(log: Log) -> None:
    """The chain goes on from sixteen zeros."""
    lines = log.data.splitlines(keepends=True)
    cap = max(map(len, lines))
    big = b'{"x":"' + b"y" * cap + b'"}\n'
    read_lines = read(lines[0] + big + lines[2], cap=cap)
    assert [line.record is not None for line in read_lines] == [True, False, True]
    assert read_lines[1].findings[0].id == "oversize"
    assert read_lines[1].after.last_hash == NO_LINE


def test_reading_on_from_any_position_gives_the_rest(log: Log) -> None:
    """As if the log had been read from its start."""
    log.add(b"#\n")
    log.append(n=5)
    log.add(b"torn")
    whole = read(log.data)
    for number, line in enumerate(whole[:-1]):
        with open_log(log.path, line.after.size) as stream:
            assert list(read_log(stream, "log", line.after)) == whole[number + 1 :]


def test_an_unterminated_line_is_a_tail_and_leaves_the_position(log: Log) -> None:
    """Also when it is a whole record: it may still be being written."""
    for cut in (1, 20):
        lines = read(log.data[:-cut])
        assert lines[-1].record is None
        assert lines[-1].after == lines[-2].after
        assert [f.id for f in lines[-1].findings] == ["torn-tail"]


def test_a_whole_record_that_lost_only_its_line_feed_is_kept_by_the_next_writer(
    agents: Any,
) -> None:
    """It gets its LF, is folded, and the next record has the next number."""
    paths = agents.publish()
    agents.talk(paths)
    whole = paths.log.read_bytes()
    before = read_agent(paths, whole=True)
    paths.log.write_bytes(whole[:-1])
    assert read_agent(paths, whole=True).torn
    agents.append(paths, "history.reset", {})
    assert paths.log.read_bytes().startswith(whole)
    after = read_agent(paths, whole=True)
    assert after.findings == ()
    assert after.state.position.last_seq == before.state.position.last_seq + 1
    assert read_agent(paths).state == after.state


@pytest.mark.feature("S-05")
@pytest.mark.parametrize("value", [float("nan"), 2**60, "\ud800", {1: 2}, b"x"])
def test_a_value_that_would_not_come_back_is_refused_and_the_log_is_untouched(
    log: Log, value: Any
) -> None:
    """Refused before anything is written."""
    before = log.data
    with pytest.raises(Invalid) as refused:
        log.append(value=value)
    assert refused.value.kind == "value-refused"
    assert log.data == before


def test_an_agent_cannot_be_known_without_its_first_record(agents: Any) -> None:
    """Missing, empty or unreadable: it is said, never guessed."""
    paths = agents.publish()
    whole = paths.log.read_bytes()
    paths.state.unlink()
    paths.descriptor.unlink()
    for data in (b"", whole[:50] + b"\0" + whole[50:], whole[:-5], b"\n" + whole[:-1], b"\n"):
        paths.log.write_bytes(data)
        with pytest.raises(Invalid):
            read_agent(paths)
    paths.log.unlink()
    with pytest.raises(Invalid, match="missing"):
        read_agent(paths)
