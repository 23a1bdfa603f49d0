"""Physical lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.rows import Line, read_lines


class Dribble(io.RawIOBase):
    """A stream that gives one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: memoryview) -> int:
        """Give one byte."""
        got = self._data.read(1)
        buffer[: len(got)] = got
        return len(got)


def lines(data: bytes, cap: int = 1000) -> list[Line]:
    """Return the lines of `data`."""
    return list(read_lines(io.BytesIO(data), cap=cap))


@pytest.mark.parametrize(
    "inside", ["\r", "\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\0"]
)
def test_only_a_line_feed_ends_a_line(inside: str) -> None:
    """CR, U+2028 and other separators stay inside their line."""
    data = f"a{inside}b\nc\n".encode()
    assert [line.data for line in lines(data)] == [f"a{inside}b\n".encode(), b"c\n"]


def test_a_last_line_without_line_feed_is_a_line() -> None:
    """The tail is handed out as it stands."""
    assert lines(b"a\nbc") == [Line(1, 0, 2, b"a\n"), Line(2, 2, 2, b"bc")]


def test_an_empty_stream_has_no_lines() -> None:
    """Nothing in, nothing out."""
    assert lines(b"") == []


def test_a_line_over_the_cap_is_skipped_with_its_whole_length() -> None:
    """The next line is found at its right place."""
    data = b"x" * 25 + b"\n" + b"y\n"
    assert lines(data, cap=10) == [Line(1, 0, 26, None), Line(2, 26, 2, b"y\n")]


@pytest.mark.parametrize("length", [9, 10])
def test_a_line_up_to_the_cap_is_read(length: int) -> None:
    """The cap itself is allowed, with or without its line feed."""
    ended = b"x" * (length - 1) + b"\n"
    open_end = b"x" * length
    assert lines(ended + b"z\n", cap=10)[0].data == ended
    assert lines(open_end, cap=10) == [Line(1, 0, length, open_end)]


def test_a_line_whose_text_fills_the_cap_is_one_byte_too_long() -> None:
    """Ten bytes and a line feed are eleven."""
    assert lines(b"x" * 10 + b"\nz\n", cap=10)[0].data is None


@given(st.binary(max_size=200).map(lambda b: b.replace(b"\x05", b"\n")), st.integers(1, 12))
def test_lines_cover_every_byte_once_whatever_the_cap(data: bytes, cap: int) -> None:
    """Offsets and lengths tile the input."""
    at = 0
    for number, line in enumerate(lines(data, cap), 1):
        assert (line.number, line.offset) == (number, at)
        if line.data is not None:
            assert line.data == data[at : at + line.length]
        at += line.length
    assert at == len(data)


@given(st.binary(max_size=60).map(lambda b: b.replace(b"\x05", b"\n")))
def test_a_stream_of_single_bytes_gives_the_same_lines(data: bytes) -> None:
    """How the bytes arrive changes nothing."""
    slow = io.BufferedReader(Dribble(data), buffer_size=1)
    assert list(read_lines(slow)) == list(read_lines(io.BytesIO(data)))


@pytest.mark.parametrize("tail", [b"", b"\n", b"\nnext\n", b"x" * 5000 + b"\nnext"])
def test_a_hole_in_a_sparse_file_is_passed_over_as_the_zeros_it_stands_for(
    tmp_path: Path, tail: bytes
) -> None:
    """Whether the file system keeps holes or not, the lines are the same."""
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.write(b"first\n" + b"y" * 3000)
        stream.seek(5_000_000, 1)
        stream.write(b"z")
        stream.seek(3_000_000, 1)
        stream.truncate()
        stream.write(tail)
    dense = io.BytesIO(path.read_bytes())
    with path.open("rb") as sparse:
        assert list(read_lines(sparse, cap=1000)) == list(read_lines(dense, cap=1000))
