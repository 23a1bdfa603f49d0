"""Tables for people that fit the terminal (docs/commands.md, "Lists")."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.cli.cells import cut, width_of
from agentsdir.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agentsdir.cli.colour import Style

GAP = "  "
_ANY = 10_000


class Column(NamedTuple):
    """How one column is shown.

    Where there is little room a column is cut down to `least` cells; None if it is never cut.
    `most` is how wide it gets. `keep_end` is whether its beginning is what is left out. `styles`
    are names of styles by the text of a cell; `style` is that of all other cells.
    """

    title: str
    least: int | None = None
    most: int = _ANY
    right: bool = False
    keep_end: bool = False
    styles: Mapping[str, str] = {}
    style: str = ""


def plain(text: str) -> str:
    """Return text on one line, with control characters as escapes, for a cell."""
    return text if text.isprintable() else one_line(text).replace("\t", " ")


class Table:
    """Rows of cells, and the columns that fit a width.

    Cells are text on one line (see `plain`). Columns without any text are left out, but the first.

    Args:
        columns: from left to right.
        dropped: the places of columns that are left out where there is no room, the first to go
            first. The others are cut.
        rows: a cell for each column.
        width: cells that a line may take.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        dropped: Sequence[int],
        rows: Sequence[Sequence[str]],
        width: int,
    ) -> None:
        self._rows = rows
        self._width = width
        self._columns = columns
        widest = [max((width_of(row[at]) for row in rows), default=0) for at in range(len(columns))]
        natural = {
            at: min(max(size, len(columns[at].title)), columns[at].most)
            for at, size in enumerate(widest)
            if size or at == 0
        }
        self._widths = _fitting(columns, natural, dropped, width)

    def lines(self, style: Style) -> Iterator[str]:
        """Yield the titles, and a line for each row."""
        titles = [column.title for column in self._columns]
        yield self._line(titles, lambda text, _: style(text, "strong"))
        for row in self._rows:
            yield self._line(row, lambda text, name: style(text, name) if name else text)

    def _line(self, row: Sequence[str], styled: _Styled) -> str:
        cells = []
        left = self._width
        for at, width in self._widths.items():
            column = self._columns[at]
            text = cut(row[at], min(width, left), keep_end=column.keep_end)
            left -= width + len(GAP)
            blank = " " * (width - width_of(text))
            shown = styled(text, column.styles.get(text, column.style))
            cells.append(blank + shown if column.right else shown + blank)
        return GAP.join(cells).rstrip()


def _fitting(
    columns: Sequence[Column], natural: dict[int, int], dropped: Sequence[int], width: int
) -> dict[int, int]:
    """Return the widths of the columns that are shown."""
    least = {at: _least(columns[at], size) for at, size in natural.items()}
    for at in dropped:
        if _total(least.values()) <= width:
            break
        least.pop(at, None)
    room = width - _total(least.values())
    for at, size in least.items():
        more = min(max(room, 0), natural[at] - size)
        least[at] += more
        room -= more
    return least


def _least(column: Column, natural: int) -> int:
    return natural if column.least is None else min(column.least, natural)


def _total(widths: Iterable[int]) -> int:
    sizes = list(widths)
    return sum(sizes) + len(GAP) * (len(sizes) - 1)


if TYPE_CHECKING:
    from collections.abc import Callable

    _Styled = Callable[[str, str], str]
