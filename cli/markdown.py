"""Markdown of answers, laid out for a terminal."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from agentsdir.cli.output import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.colour import Style

_LONGEST = 64 * 1024
_MOST_LINES = 1500
_MOST_BARS = 2000
_MOST_BRACKETS = 500
_MOST_MARKS = 6000
_DEEPEST = 15
"""Characters, lines, bars of tables, brackets, other marks and levels of a text; one that has more
is shown as it was written: laying it out takes seconds."""
_MOST_NESTING = 60
"""Levels of tokens, of which a list and its item have one each. The parser leaves out the rest."""
_MAY_GO = frozenset("\\`*_[]()<>#+-.!|~=:&;\"'•▌─")
"""Marks of Markdown, which a layout may leave out, and those that it puts in."""
_REFERENCE = re.compile(r"&(?:#\w+|\w+);", re.ASCII)
_WIDEST = 120
"""Columns of a line that is still easy to read."""


def markdown(text: str, width: int, style: Style) -> str:
    """Return a Markdown text as lines of a terminal, without the last LF.

    Nothing in it acts: control characters are shown as escapes, those of character references too,
    and a link is its text and its address, never a code of the terminal. Nothing but marks is left
    out: a text that cannot be laid out wholly, or not soon, comes back as it was written.

    Args:
        width: columns of the terminal.
        style: whether there are colours; without them the layout stays.
    """
    text = escape_controls(text)
    if not _is_fit(text):
        return text
    try:
        lines = _lines(text, min(width, _WIDEST))
    except (RecursionError, ValueError, IndexError, KeyError, RuntimeError):  # of a library
        return text
    if not _is_whole(text, "".join(said for line in lines for said, _ in line)):
        return text
    coloured = ["".join(_coloured(line, style)) for line in lines]
    # A text that is nothing but marks is shown as it was written, too.
    return "\n".join(coloured).strip("\n") if any(map(str.strip, coloured)) else text


def _is_fit(text: str) -> bool:
    """Tell whether a text can be laid out soon."""
    if len(text) > _LONGEST or text.count("|") > _MOST_BARS or text.count("\n") > _MOST_LINES:
        return False
    if text.count("[") > _MOST_BRACKETS or sum(map(text.count, "*_~`<>&\\+-")) > _MOST_MARKS:
        return False
    deep = "    " * _DEEPEST
    return not any(
        line.startswith(deep) or line[:200].count(">") > _DEEPEST for line in text.split("\n")
    )


def _is_whole(text: str, laid_out: str) -> bool:
    """Tell whether all of a text but marks is there once it is laid out.

    Cells that are broken stand in another order, so only the number of each character counts.
    """
    # Character references are replaced outside of code only; with both kinds, it is not whole.
    replaced = escape_controls(_REFERENCE.sub(_character, text))
    return _told(laid_out) in (_told(text), _told(replaced))


def _told(text: str) -> dict[str, int]:
    """Return how often each character comes that is no blank and no mark."""
    counts = Counter(text)
    return {one: counts[one] for one in counts if one not in _MAY_GO and not one.isspace()}


def _character(reference: re.Match[str]) -> str:
    import html  # few texts need it

    return html.unescape(reference[0])


def _lines(text: str, width: int) -> list[list[tuple[str, Any]]]:
    """Return lines as pairs of a text and its style."""
    from rich.console import Console
    from rich.theme import Theme

    # Without a terminal of its own, and without the variables that would change what it does.
    theme = Theme({"markdown.code": "cyan", "markdown.link": "", "markdown.link_url": "underline"})
    console = Console(width=width, height=100, theme=theme, _environ={}, legacy_windows=False)
    return [_safe(line) for line in console.render_lines(_renderer()(text), pad=False)]


def _safe(line: list[Any]) -> list[tuple[str, Any]]:
    segments = [(segment.text, segment.style) for segment in line if not segment.control]
    while segments and not segments[-1][0].strip():
        segments.pop()
    if segments:
        segments[-1] = segments[-1][0].rstrip(), segments[-1][1]
    # A character reference, such as &#x202e;, is a character only now.
    return [(escape_controls(text).replace("\n", " "), style) for text, style in segments]


def _coloured(line: list[tuple[str, Any]], style: Style) -> Iterator[str]:
    from rich.color import ColorSystem

    for text, of_text in line:
        if not style.on or of_text is None:
            yield text
        else:
            yield of_text.update_link(None).render(text, color_system=ColorSystem.STANDARD)


@cache
def _renderer() -> Any:
    """Return rich's Markdown with headings at the left, code without guesses, and nothing cut."""
    from markdown_it import MarkdownIt
    from rich.markdown import CodeBlock, Heading, ListItem, Markdown, TableElement
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
            if self.said:
                yield Padding(Text(self.said, style="dim", overflow="fold"), (0, 2))
            yield Padding(Text(str(self.text).rstrip(), style="cyan", overflow="fold"), (0, 2))

    class Title(Heading):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            title = self.text.copy()
            title.justify = "left"
            title.stylize("bold underline" if self.tag == "h1" else "bold")
            yield title

    class Item(ListItem):
        number = 0

        @classmethod
        def create(cls, markdown: Markdown, token: Any) -> Item:
            item = cls()
            item.number = int(token.info or 0)
            return item

        def render_number(self, console: Any, options: Any, number: int, last_number: int) -> Any:
            # As it was written: a list may give all its items the same number.
            return super().render_number(console, options, self.number, last_number)

    class Grid(TableElement):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            tables: Any = super().__rich_console__(console, options)
            for table in tables:
                for column in table.columns:
                    column.overflow = "fold"
                yield table

    # Without what takes words away: tags, definitions of links, pictures.
    parser: Any = MarkdownIt("commonmark", {"maxNesting": _MOST_NESTING})
    parser.enable(["strikethrough", "table"])
    parser.disable(["html_block", "html_inline", "reference", "image"])
    parser.normalizeLink = str  # an address as it was written

    class Plain(Markdown):
        elements: ClassVar[dict[str, Any]] = {
            **Markdown.elements, "heading_open": Title, "fence": Code, "code_block": Code,
            "list_item_open": Item, "table_open": Grid,
        }  # fmt: skip

        def __init__(self, text: str) -> None:
            super().__init__("", hyperlinks=False)
            self.markup, self.parsed = text, parser.parse(text)
            for token in self.parsed:  # the text of such a link is its address
                token.children = [c for c in token.children or () if c.markup != "autolink"]

    return Plain
