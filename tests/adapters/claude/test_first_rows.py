"""The first rows of a file, which say whose it is, are found without decoding its whole head."""

from __future__ import annotations

from typing import Any

from claude_support import lines
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters.claude.discover import FirstRows, head_rows
from agentsdir.formats.source import HEAD, heads

NOTE: dict[str, Any] = {"type": "mode", "sessionId": "s"}
SAID: dict[str, Any] = {"type": "user", "isSidechain": False, "sessionId": "t"}
STREAMED: dict[str, Any] = {"type": "user", "session_id": "u"}
PIECES = (
    lines(NOTE),
    lines(SAID),
    lines(STREAMED),
    lines({**NOTE, "content": "x" * HEAD}),
    lines({**SAID, "content": "x" * HEAD}),
    lines({**NOTE, "content": "x" * (HEAD // 4)}),
    lines({**SAID, "content": "x" * (HEAD // 4)}),
    lines(NOTE).rstrip() + lines(SAID),
    lines(NOTE)[:-4],
    b'{"type":"mode","more":' + lines(SAID),
    b"\xef\xbb\xbf",
    b"\n",
    b"\0\0\0",
    b"damaged\n" * 5,
    lines(*[NOTE] * 40),
)


def all_at_once(data: bytes) -> list[dict[str, Any]]:
    """Return what `FirstRows` should yield, by decoding each head whole."""
    rows: list[dict[str, Any]] = []
    for head in heads(lambda size: data[:size]):
        rows = list(head_rows(head))
        if head.count(b"\n") >= 64:
            break
        if any("isSidechain" in row or "session_id" in row for row in rows):
            break
    return rows


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join))
def test_rows_that_are_decoded_one_by_one_are_those_of_the_whole_head(data: bytes) -> None:
    """Also where lines are damaged, glued together, or longer than the head."""
    assert list(FirstRows(lambda size: data[:size])) == all_at_once(data)


def test_they_may_be_asked_for_several_times() -> None:
    """A second reader gets those that the first one decoded, and goes on from there."""
    data = lines(NOTE, SAID, STREAMED)
    rows = FirstRows(lambda size: data[:size])
    first = iter(rows)
    assert next(first) == NOTE
    assert list(rows) == [NOTE, SAID, STREAMED]
    assert list(first) == [SAID, STREAMED]


def test_nothing_is_read_behind_the_row_that_is_wanted() -> None:
    """A longer head is read when the first one has been asked for its last row."""
    data = lines(NOTE, {**NOTE, "content": "x" * HEAD}, SAID)
    asked: list[int] = []

    def read(size: int) -> bytes:
        asked.append(size)
        return data[:size]

    rows = FirstRows(read)
    assert next(iter(rows)) == NOTE
    assert asked == [HEAD]
    assert list(rows)[-1] == SAID
    assert asked == [HEAD, 2 * HEAD]
