"""Markdown of an answer is laid out, loses no word, and never drives a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentsdir.cli.colour import Style
from agentsdir.cli.markdown import markdown
from agentsdir.cli.output import escape_controls

COLOURS = Style(on=True)
PLAIN = Style(on=False)
CODES = re.compile(r"\x1b\[[0-9;]*m")
ATTACKS = {
    "a link of the terminal": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "a title": "\x1b]0;owned\x07",
    "a cursor that moves": "\x1b[2J\x1b[1;1H",
    "a C1 code": "\x9b31mred",
    "an overwritten line": "safe\rrm -rf",
    "a text from right to left": "\u202egnp.exe\u2066x",
    "character references": "&#x202e; &#8238; &rlm; &#27; &#x9b;31m",
    "a link": "[click](http://evil '\x1b]0;x\x07') <http://auto.link>",
    "a link with an address in it": "[http://bank](http://evil)",
    "a picture": "![\u202ealt](\x1b[31mhttp://evil)",
    "tags of the library": "[bold red]x[/bold red] [link=http://evil]y[/link] :smile:",
    "code": "```\x1b[31m\n\x1b]8;;u\x1b\\x\n```\n`\x1b[0m`",
    "a table": "| \x1b[31m | \u202e |\n|---|---|\n| &#x202e; | \r |",
}
CORNERS = {
    "a line of 1 MB": "x" * 1_000_000,
    "1 MB of words": "word " * 200_000,
    "a wide table": ("|a" * 39 + "|\n" + "|-" * 39 + "|\n") + ("|b" * 39 + "|\n") * 700,
    "a tall table": "|a|b|\n|-|-|\n" + "|b|cc|\n" * 8000,
    "deep lists": "".join("  " * depth + "- x\n" for depth in range(200)),
    "deep quotes": ">" * 5000 + "x",
    "open brackets": "[" * 30_000,
    "open links": "[a](" * 12_000,
    "stars": "*a **b " * 9000,
    "many items": "- a\n" * 15_000,
    "back ticks": "".join("`" * count for count in range(340)),
    "half a pair": "\ud83d **x**",
    "nothing": "",
    "white space": " \n \n",
}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("style", [COLOURS, PLAIN])
def test_nothing_in_an_answer_acts(name: str, style: Style) -> None:
    """The only codes are colours of ours, and a link shows where it leads."""
    shown = CODES.sub("", markdown(ATTACKS[name], 60, style))

    assert escape_controls(shown) == shown
    assert "evil" not in ATTACKS[name] or "evil" in shown


@pytest.mark.parametrize("name", CORNERS)
def test_a_text_that_is_hard_to_lay_out_is_shown_all_the_same(name: str) -> None:
    """With all its letters, and without an error; what would take long is not laid out."""
    text = CORNERS[name]

    shown = markdown(text, 80, COLOURS)

    assert letters(CODES.sub("", shown)) == letters(text)


def letters(text: str) -> str:
    """Return the letters of a text, and the marks where it has nothing else."""
    return "".join(filter(str.isalpha, text)) or "".join(text.split())


def numbered(blocks: list[str]) -> str:
    """Return blocks as one text, in which each word is another."""
    parts = "\n\n".join(blocks).split("{}")
    words = (f"w{at}x" for at in range(1, len(parts)))
    return parts[0] + "".join(word + part for word, part in zip(words, parts[1:], strict=True))


MARKS = st.text("abc1 *_`#>-|[]()!<>&;\n~.=:\\'\"$", max_size=300)
# Blocks that hold words, one within another, at any depth that the parser may leave out.
BLOCKS = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.sampled_from(
            ("- {}", "1. {}", "> {}", "# {}", "```{}\n{}\n```", "|{}|{}|\n|-|-|\n|{}|{}|{}|")
        ),
    ).map(lambda one: "\n".join("  " * one[0] + line for line in one[1].split("\n"))),
    max_size=20,
).map(numbered)
TELLING = re.compile(r"[^\W_]+")


@pytest.mark.parametrize("texts", [MARKS, BLOCKS], ids=["marks", "blocks"])
@given(st.data(), st.integers(1, 100))
def test_no_word_is_lost(texts: st.SearchStrategy[str], data: st.DataObject, width: int) -> None:
    """Marks may go; all else stays, or the text is as it was written."""
    text = data.draw(texts)
    assume(not re.search(r"&#?\w+;", text))  # which would be another character
    shown = CODES.sub("", markdown(text, width, COLOURS))
    # Cells that are broken stand in another order.
    assert sorted("".join(TELLING.findall(shown))) == sorted("".join(TELLING.findall(text)))
    if texts is BLOCKS:
        assert sorted(TELLING.findall(markdown(text, 120, PLAIN))) == sorted(TELLING.findall(text))


LEFT_OUT = {
    "items in items": "".join("  " * depth + f"- i{depth}\n" for depth in range(14)) + "\nEND.",
    "items on one line": "- " * 80 + "x\n\nEND.",
    "a table of many columns": f"{'|column' * 40}|\n{'|-' * 40}|\n{'|cell' * 40}|\n",
    "a cell without a column": "|a|b|\n|-|-|\n|1|2|extra|",
    "a long word in a cell": f"|a|b|\n|-|-|\n|{'x' * 70}END|{'y' * 70}END|",
    "a title of a link": "[name](http://x 'title')",
    "a word after a fence": "```python\nprint()\n```",
    "numbers that are not in order": "1. a\n1. b\n1. c",
    "references in text and code": "&lt;a&gt; `&lt;b&gt;`",
    "an address": "<http://a/_b_> [c](http://ü/d)",
}


@pytest.mark.parametrize("name", LEFT_OUT)
@pytest.mark.parametrize("width", [5, 40, 80])
def test_what_the_library_would_leave_out_is_there(name: str, width: int) -> None:
    """It is laid out in another way, or the text is as it was written."""
    text = LEFT_OUT[name]
    shown = markdown(text, width, PLAIN)
    assert shown == text or sorted("".join(TELLING.findall(shown))) == sorted(
        "".join(TELLING.findall(text))
    )


SLOW = {
    "brackets": "[" * 65_000,
    "pictures": "![" * 30_000,
    "lines": "~~a" * 21_000,
    "strong cells": "|" + "**x**" * 12_000 + "|\n|-|\n",
    "lists in lists": ("- " * 7 + "x\n") * 1400,
    "lists in quotes": ("> - " * 5 + "x\n") * 1400,
    "code": "`x` " * 16_000,
}


@pytest.mark.parametrize("name", SLOW)
def test_what_would_take_seconds_is_not_laid_out(name: str) -> None:
    """It stands as it was written."""
    assert markdown(SLOW[name], 80, PLAIN) == SLOW[name]


def test_what_it_looks_like() -> None:
    """Headings at the left, lists, code, a table, a quote; links with their addresses."""
    text = (
        "# Title\n\nSome *emphasis*, **strong** and `code`.\n\n- one\n- two\n  1. inner\n\n"
        "```python\nprint('a')\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
        "> said\n\n[docs](https://example.com) Use <Foo> &amp; x.\n"
    )
    assert markdown(text, 60, PLAIN).split("\n") == [
        "Title",
        "",
        "Some emphasis, strong and code.",
        "",
        " • one",
        " • two",
        "    1 inner",
        "",
        "  python",
        "  print('a')",
        "",
        "",
        " a  b",
        " ────",
        " 1  2",
        "",
        "",
        "▌ said",
        "",
        "docs (https://example.com) Use <Foo> & x.",
    ]
    assert "\x1b[1mstrong\x1b[0m" in markdown(text, 60, COLOURS)
