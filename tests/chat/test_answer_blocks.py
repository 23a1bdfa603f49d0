"""Answers in pieces: cut between blocks of Markdown and nowhere else, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.chat.answers import AnswerBlocks

LINES = st.sampled_from(["word", "", "```", "~~~~", "```python", "- item", "    ", "````", "x`y"])


@given(st.lists(LINES), st.lists(st.integers(1, 5)))
def test_the_blocks_are_the_answer_however_it_is_cut_into_pieces(
    lines: list[str], sizes: list[int]
) -> None:
    """No word is lost, and none comes twice."""
    text = "\n".join(lines)
    whole = AnswerBlocks()
    at_once = [*whole.take(text), whole.end()]

    blocks, taken, given_out = AnswerBlocks(), 0, []
    for size in [*sizes, len(text)]:
        given_out += blocks.take(text[taken : taken + size])
        taken += size

    assert [*given_out, blocks.end()] == at_once
    assert "".join("".join(at_once).split()) == "".join(text.split())


@pytest.mark.parametrize("fence", ["```", "~~~", "`````"])
def test_code_is_one_block_with_its_empty_lines(fence: str) -> None:
    """An empty line ends a paragraph, and no code."""
    blocks = AnswerBlocks()
    code = f"{fence}python\na = 1\n\nb = 2\n"
    assert blocks.take(f"See:\n\n{code}") == ["See:"]
    assert blocks.take(f"{fence}\n") == [f"{code}{fence}"]
    assert blocks.rest == ""
