"""Colours are on where the user and the terminal want them, and never come from content."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from agentsdir.cli.colour import ALWAYS, AUTO, NEVER, STYLES, Style, style_of
from agentsdir.cli.environment import Environment
from agentsdir.cli.options import check_when
from agentsdir.cli.output import screen_width
from agentsdir.formats.errors import UsageError


class TtyStream(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def on_terminal(variables: dict[str, str], *, tty: bool = True) -> Environment:
    """Return the environment of a command whose output is a terminal, or is none."""
    stdout = TtyStream() if tty else io.StringIO()
    return Environment(io.BytesIO(), stdout, io.StringIO(), variables, Path("/"), Path("/"))


@pytest.mark.parametrize(
    ("variables", "tty", "on"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"TERM": "xterm", "CLICOLOR": "0"}, True, False),
        ({"TERM": "dumb", "CLICOLOR_FORCE": "1"}, False, True),
        ({"TERM": "xterm", "CLICOLOR_FORCE": "0"}, False, False),
        ({"TERM": "xterm", "CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_the_environment_and_the_stream_decide(
    variables: dict[str, str], tty: bool, on: bool
) -> None:
    """NO_COLOR first, then CLICOLOR_FORCE, then whether it is a terminal that has colours."""
    assert style_of(on_terminal(variables, tty=tty), AUTO).on is on


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "xterm"}])
def test_the_option_goes_before_the_environment(variables: dict[str, str]) -> None:
    """`--color always` and `never` are what they say, whatever a variable says."""
    env = on_terminal(variables)

    assert style_of(env, ALWAYS).on
    assert not style_of(env, NEVER).on


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("name", STYLES)
def test_a_styled_text_holds_no_code_but_ours(name: str, on: bool) -> None:
    """Codes, titles and links of a text are shown as escapes, and each line ends its colour."""
    shown = Style(on=on)("a\x1b[31mb\x1b]0;title\x07\n\u202ec\rd", name)

    assert re.sub(r"\x1b\[[0-9;]*m", "", shown) == "a\\x1b[31mb\\x1b]0;title\\x07\n\\u202ec\\x0dd"
    assert all(line.endswith("\x1b[m") is on for line in shown.split("\n"))


def test_a_word_that_is_no_time_for_colours_is_refused() -> None:
    """Exit 2, with what there is."""
    with pytest.raises(UsageError, match="auto, always or never"):
        check_when("sometimes")


@pytest.mark.parametrize(
    ("columns", "width"), [("60", 60), ("0", 80), ("-5", 80), ("many", 80), ("9999999", 500)]
)
def test_a_width_that_cannot_be_is_not_believed(columns: str, width: int) -> None:
    """A terminal may lie about its size."""
    assert screen_width(on_terminal({"COLUMNS": columns})) == width
