"""What a typed line means: prompts, commands, agents that are left out, pastes that are folded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.cli.chat.pastes import Pastes
from agentsdir.cli.chat.typed import Prompt, Slash, read_line, with_agent
from agentsdir.formats.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("", None),
        ("  \n ", None),
        ("fix it", Prompt("fix it")),
        ("  indented\n  text\n", Prompt("  indented\n  text")),
        ("/inspect", Slash("inspect")),
        ("/switch 'my agent'", Slash("switch", ("my agent",), "'my agent'")),
        ("/spawn don't stop", Slash("spawn", (), "don't stop")),
        ("/etc/hosts is what?", Prompt("/etc/hosts is what?")),
        ("//model is a word", Prompt("/model is a word")),
        ("/ 2", Prompt("/ 2")),
        ("what is /model", Prompt("what is /model")),
    ],
)
def test_a_line_is_a_prompt_or_a_command(typed: str, means: object) -> None:
    """A path is no command."""
    assert read_line(typed) == means


def test_quotes_that_do_not_end_are_named() -> None:
    """Nothing is done then."""
    with pytest.raises(UsageError, match="/tag: no closing quotation"):
        read_line("/tag 'x")


@pytest.mark.parametrize(
    ("verb", "words", "becomes"),
    [
        ("inspect", (), ("AGENT",)),
        ("inspect", ("other",), ("other",)),
        ("inspect", ("--json",), ("AGENT", "--json")),
        ("tag", ("+urgent", "-later"), ("AGENT", "+urgent", "-later")),
        ("tag", ("other", "+urgent"), ("other", "+urgent")),
        ("set", ("cwd=.",), ("AGENT", "cwd=.")),
        ("set", ("other", "cwd=."), ("other", "cwd=.")),
        ("rename", ("new",), ("AGENT", "new")),
        ("rename", ("other", "new"), ("other", "new")),
        ("list", (), ()),
        ("restore", (), ()),
        ("parse", ("file",), ("file",)),
    ],
)
def test_the_agent_that_is_left_out_is_that_of_the_conversation(
    verb: str, words: tuple[str, ...], becomes: tuple[str, ...]
) -> None:
    """One that is named counts, as in a shell."""
    assert with_agent(verb, words, "AGENT") == becomes
    assert with_agent(verb, words, "") == words


@given(st.lists(st.text(max_size=30) | st.just("[pasted 1,001 characters #1]"), max_size=6))
def test_what_was_pasted_is_sent_as_it_was(pieces: list[str]) -> None:
    """Also where it holds words that look like those of a folded paste."""
    pastes = Pastes()
    long = [piece + "x" * 1001 for piece in pieces]
    line = " and ".join(pastes.folded(text) for text in long)
    assert all(len(pastes.folded(text)) < 50 for text in long)
    assert pastes.unfolded(line) == " and ".join(long)


def test_words_of_a_paste_that_never_was_stay_words() -> None:
    """They were typed."""
    assert Pastes().unfolded("[pasted 1,001 characters #1]") == "[pasted 1,001 characters #1]"


def test_a_short_paste_is_not_folded_and_one_of_many_lines_is() -> None:
    """By its lines, too."""
    pastes = Pastes()
    assert pastes.folded("a\nb") == "a\nb"
    assert pastes.folded("\n" * 8) == "[pasted 8 characters #1]"
