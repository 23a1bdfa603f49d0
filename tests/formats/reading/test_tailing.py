"""A file that a process writes: complete lines, once each, and every sign of a rewrite."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.tail import EDGE, Look, Tail


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a file is to be."""
    return tmp_path / "f"


def read(tail: Tail) -> list[bytes | int]:
    """Return the lines that were added."""
    return list(tail.lines())


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"x", b"\n")), max_size=8))
def test_lines_come_whole_and_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    """However they were cut when they were written."""
    path = tmp_path_factory.mktemp("tail") / "f"
    tail = Tail(path)
    found: list[bytes | int] = []
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        if tail.look() is Look.GREW:
            found += read(tail)
    whole = b"".join(pieces)
    rest = tail.rest()
    assert [*found, *([rest] if rest else [])] == list(io.BytesIO(whole))


def test_nothing_is_there_until_a_regular_file_is(path: Path) -> None:
    """A folder in between, or something else in its place, is nothing either."""
    assert Tail(path).look() is Look.ABSENT
    assert Tail(path / "g").look() is Look.ABSENT
    path.write_bytes(b"a\n")
    assert Tail(path / "g").look() is Look.ABSENT
    path.unlink()
    os.mkfifo(path)
    assert Tail(path).look() is Look.ABSENT


def test_what_the_system_refuses_is_an_error(path: Path) -> None:
    """A name that is too long, which root cannot read either."""
    with pytest.raises(AgentsdirError, match="cannot read"):
        Tail(path.with_name("n" * 300)).look()


def test_links_in_a_circle_lead_to_no_file(path: Path) -> None:
    """One that is not there is waited for."""
    path.symlink_to(path)
    assert Tail(path).look() is Look.ABSENT


def rewritten(path: Path, how: str) -> None:
    """Write a file anew that holds three lines."""
    data = path.read_bytes()
    if how == "shorter":
        os.truncate(path, 3)
    elif how == "replaced":
        beside = path.with_name("g")
        beside.write_bytes(data + b"more\n")
        beside.replace(path)
    elif how == "other end":
        path.write_bytes(data[:2] + data[4:] + b"more\n")
    else:
        path.write_bytes(data.replace(b"b", b"B"))
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


@pytest.mark.parametrize("how", ["shorter", "replaced", "other end", "in place"])
def test_every_kind_of_rewrite_is_seen(path: Path, how: str) -> None:
    """By its size, its inode, the bytes before the place that was read to, or its time."""
    path.write_bytes(b"a\nb\nc\n")
    tail = Tail(path)
    assert read(tail) == [b"a\n", b"b\n", b"c\n"]
    assert tail.look() is Look.SAME
    rewritten(path, how)
    assert tail.look() is Look.CHANGED
    tail.rewind()
    assert (
        b"".join(line for line in read(tail) if isinstance(line, bytes))
        + (rest if isinstance(rest := tail.rest(), bytes) else b"")
        == path.read_bytes()
    )


def test_more_of_the_same_is_no_rewrite(path: Path) -> None:
    """Also when what was read is longer than the edge that is compared."""
    path.write_bytes((b"x" * 99 + b"\n") * (EDGE // 50))
    tail = Tail(path)
    read(tail)
    with path.open("ab") as file:
        file.write(b"more\n")
    assert tail.look() is Look.GREW
    assert read(tail) == [b"more\n"]


def test_a_file_that_was_replaced_after_the_look_is_not_mixed_with_it(path: Path) -> None:
    """The next look says what happened."""
    path.write_bytes(b"a\n")
    tail = Tail(path)
    read(tail)
    with path.open("ab") as file:
        file.write(b"b\n")
    assert tail.look() is Look.GREW
    rewritten(path, "replaced")
    assert read(tail) == []
    assert tail.look() is Look.CHANGED


def test_a_line_over_the_cap_is_passed_over_by_its_length(path: Path) -> None:
    """It is not kept, and the next one is read."""
    path.write_bytes(b"12345678")
    tail = Tail(path, cap=8)
    assert read(tail) == []
    with path.open("ab") as file:
        file.write(b"9\nabc\n" + b"z" * 20)
    assert read(tail) == [10, b"abc\n"]
    assert tail.rest() == 20


def test_a_moved_file_is_found_by_what_it_is(path: Path) -> None:
    """Not by its name, and not one whose inode was given to other bytes."""
    path.write_bytes(b"a\n")
    tail = Tail(path)
    assert not tail.find([path.parent])
    read(tail)
    new = path.with_name("new")
    path.rename(new)
    assert tail.look() is Look.ABSENT
    assert tail.find([path.parent / "nowhere", path.parent])
    assert (tail.path, tail.look()) == (new, Look.SAME)
    moved = path.with_name("newer")
    new.rename(moved)
    moved.write_bytes(b"b\nb\n")
    assert not tail.find([path.parent])


def test_a_file_is_read_whole_until_it_is_another(path: Path) -> None:
    """What was read so counts as read; every write to it is a change."""
    tail = Tail(path)
    assert tail.whole() == b""
    path.write_bytes(b"a\nb")
    assert tail.look() is Look.GREW
    assert tail.whole() == b"a\nb"
    assert tail.look() is Look.SAME
    path.write_bytes(b"c")
    assert tail.look() is Look.CHANGED
    assert tail.whole() == b"c"


def test_the_file_that_was_read_is_distinguished_from_another_in_its_place(path: Path) -> None:
    """A file that stands where it stood is none that was read."""
    tail = Tail(path)
    assert tail.reopen() is None
    path.write_bytes(b"a\n")
    read(tail)
    with tail.reopen() or io.BytesIO() as file:
        assert file.read() == b"a\n"
    moved = path.with_name("moved")
    path.rename(moved)
    assert (tail.is_at(moved), tail.is_at(path), tail.reopen()) == (True, False, None)
    path.write_bytes(b"a\n")
    assert (tail.is_at(path), tail.reopen()) == (False, None)


@pytest.mark.parametrize("before", [1, 100, EDGE, EDGE + 1])
def test_a_tail_begins_at_a_line_that_was_read_before(path: Path, before: int) -> None:
    """What comes before is compared from then on, as if it had been read."""
    path.write_bytes(b"a" * (before - 1) + b"\n")
    tail = Tail(path)
    assert tail.begin_at(before)
    assert (tail.look(), read(tail)) == (Look.GREW, [])
    with path.open("ab") as file:
        file.write(b"b\n")
    assert (tail.look(), read(tail)) == (Look.GREW, [b"b\n"])
    path.write_bytes(b"c" * (before - 1) + b"\nb\nd\n")
    assert tail.look() is (Look.CHANGED if before > 1 else Look.GREW)


def test_a_tail_does_not_begin_within_a_line_or_behind_the_end(path: Path) -> None:
    """It is at the beginning then."""
    path.write_bytes(b"a\nb\n")
    tail = Tail(path)
    for offset in (0, 1, 3, 5, 10**9):
        assert not tail.begin_at(offset)
        assert tail.look() is Look.GREW
    assert read(tail) == [b"a\n", b"b\n"]
