"""Markdown of answers, laid out for a terminal."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from agentsdir.cli.output import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.colour import Style

_LONGEST = 64 * 1024
_MOST_LINES = 1500
_MOST_BARS = 2000
_DEEPEST = 15
"""Characters, lines, bars of tables and levels of a text; one that has more is shown as it was
written: laying it out takes seconds, or the parser leaves out what stands too deep."""
_WIDEST = 120
"""Columns of a line that is still easy to read."""


def markdown(text: str, width: int, style: Style) -> str:
    """Return a Markdown text as lines of a terminal, without the last LF.

    Nothing in it acts: control characters are shown as escapes, those of character references too,
    and a link is its text and its address, never a code of the terminal. A text that is no Markdown
    to be laid out comes back as it was written.

    Args:
        width: columns of the terminal.
        style: whether there are colours; without them the layout stays.
    """
    text = escape_controls(text)
    if not _is_fit(text):
        return text
    try:
        lines = _lines(text, min(width, _WIDEST), style)
    except (RecursionError, ValueError, IndexError, KeyError, RuntimeError):  # of a library
        return text
    # A text that is nothing but marks is shown as it was written, too.
    return "\n".join(lines).strip("\n") if any(map(str.strip, lines)) else text


def _is_fit(text: str) -> bool:
    """Tell whether a text can be laid out soon, with nothing lost."""
    if len(text) > _LONGEST or text.count("|") > _MOST_BARS or text.count("\n") > _MOST_LINES:
        return False
    deep = "    " * _DEEPEST
    return not any(
        line.startswith(deep) or line[:200].count(">") > _DEEPEST for line in text.split("\n")
    )


def _lines(text: str, width: int, style: Style) -> list[str]:
    from rich.color import ColorSystem
    from rich.console import Console
    from rich.theme import Theme

    # Without a terminal of its own, and without the variables that would change what it does.
    theme = Theme({"markdown.code": "cyan", "markdown.link": "", "markdown.link_url": "underline"})
    console = Console(width=width, height=100, theme=theme, _environ={}, legacy_windows=False)
    system = ColorSystem.STANDARD if style.on else None
    laid_out = console.render_lines(_renderer()(text), pad=False)
    return ["".join(_shown(line, system)) for line in laid_out]


def _shown(line: list[Any], system: Any) -> Iterator[str]:
    segments = [(segment.text, segment.style) for segment in line if not segment.control]
    while segments and not segments[-1][0].strip():
        segments.pop()
    if segments:
        segments[-1] = segments[-1][0].rstrip(), segments[-1][1]
    for text, style in segments:
        # A character reference, such as &#x202e;, is a character only now.
        safe = escape_controls(text).replace("\n", " ")
        if system is None or style is None:
            yield safe
        else:
            yield style.update_link(None).render(safe, color_system=system)


@cache
def _renderer() -> Any:
    """Return rich's Markdown with headings at the left, and code without guesses about it."""
    from markdown_it import MarkdownIt
    from rich.markdown import CodeBlock, Heading, Markdown
    from rich.padding import Padding
    from rich.text import Text

    class Code(CodeBlock):
        said = ""

        @classmethod
        def create(cls, markdown: Markdown, token: Any) -> Code:
            code = super().create(markdown, token)
            assert isinstance(code, Code)
            code.said = token.info
            return code

        def __rich_console__(self, console: Any, options: Any) -> Any:
            # All that was said about it, which may be more than the name of a language.
            if len(self.said.split()) > 1:
                yield Padding(Text(self.said, style="dim", overflow="fold"), (0, 2))
            yield Padding(Text(str(self.text).rstrip(), style="cyan", overflow="fold"), (0, 2))

    class Title(Heading):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            title = self.text.copy()
            title.justify = "left"
            title.stylize("bold underline" if self.tag == "h1" else "bold")
            yield title

    # Without what takes words away: tags, definitions of links, pictures.
    parser = MarkdownIt().enable(["strikethrough", "table"])
    parser.disable(["html_block", "html_inline", "reference", "image"])

    class Plain(Markdown):
        elements: ClassVar[dict[str, Any]] = {
            **Markdown.elements, "heading_open": Title, "fence": Code, "code_block": Code,
        }  # fmt: skip

        def __init__(self, text: str) -> None:
            super().__init__("", hyperlinks=False)
            self.markup, self.parsed = text, parser.parse(text)

    return Plain
