"""Text that comes in pieces goes on in pieces that can be written, and none of it is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats import jsontext
from agentsdir.formats.blocks import Deltas

_TEXTS = st.text(st.sampled_from(["a", "é", "\U0001f680", "\ud83d", "\ude80", "\n"]), max_size=12)


def test_halves_of_a_character_meet() -> None:
    """The first half waits for the second; at the end it is none."""
    deltas = Deltas()
    assert [deltas.more("a\ud83d"), deltas.more("\ude80b"), deltas.more("\ud83d")] == [
        "a", "\U0001f680b", "",
    ]  # fmt: skip
    assert (deltas.rest(), deltas.rest()) == ("\ufffd", "")


@given(_TEXTS, st.lists(st.integers(0, 12), max_size=4))
def test_pieces_cut_anywhere_make_up_the_text_as_a_block_has_it(text: str, cuts: list[int]) -> None:
    """Cleaned as every text is that no file can hold."""
    deltas, told, start = Deltas(), "", 0
    for end in [*sorted(cuts), len(text)]:
        told += deltas.more(text[start:end])
        start = max(start, end)
        told.encode()
    assert told + deltas.rest() == jsontext.clean(text, set())
