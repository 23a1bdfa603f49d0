"""Colours for people: when they are on, and the styles (docs/commands.md, "On a terminal")."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from agentsdir.cli.output import escape_controls

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment

AUTO, ALWAYS, NEVER = "auto", "always", "never"
WHEN = (AUTO, ALWAYS, NEVER)

# Only the 16 colours, which the user's terminal has chosen to be read on its background.
STYLES = {
    "strong": "1",
    "faint": "2",
    "prompt": "1;36",
    "tool": "36",
    "success": "32",
    "warning": "33",
    "failure": "31",
    "added": "32",
    "removed": "31",
    "place": "35",
}


class Style:
    """Gives text the look of a named style: ``style("done", "success")``.

    Control characters of the text are escaped first, so what it returns may be written to a
    terminal as it is, and must not be escaped again: that would show the codes of the colours.

    Args:
        on: whether there are colours; without them the text is only escaped.
    """

    def __init__(self, *, on: bool) -> None:
        self.on = on

    def __call__(self, text: str, name: str) -> str:
        """Return text in the style of a name of `STYLES`, each line by itself, as pagers need.

        An empty name is no style.
        """
        text = escape_controls(text)
        if not (self.on and name):
            return text
        code = STYLES[name]
        return "\n".join(f"\x1b[{code}m{line}\x1b[m" if line else "" for line in text.split("\n"))


PLAIN = Style(on=False)


def style_of(env: Environment, when: str = AUTO, stream: TextIO | None = None) -> Style:
    """Return the style for what is written to a stream.

    Args:
        when: the value of `--color`; `auto` asks the environment and the stream.
        stream: standard output if it is None.
    """
    return Style(on=_is_on(env, when, env.stdout if stream is None else stream))


def _is_on(env: Environment, when: str, stream: TextIO) -> bool:
    if when != AUTO:
        return when == ALWAYS
    said = env.variables.get
    if said("NO_COLOR"):
        return False
    if said("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    return stream.isatty() and said("CLICOLOR") != "0" and said("TERM", "dumb") not in ("", "dumb")
