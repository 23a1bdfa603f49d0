"""Agents as a table for people, or as JSON Lines (docs/commands.md, "Lists")."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.cli.colour import style_of
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_lines, screen_width, wants_json
from agentsdir.cli.table import Column, Table, plain
from agentsdir.engine.listing import (
    RUNNING,
    UNREADABLE,
    WAITING,
    Listing,
    Wanted,
    last_change,
    other_names,
    short_length,
    state_of,
)
from agentsdir.formats import times

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.listing import Entry
    from agentsdir.engine.lookup import ListedAgent

_STATES = {WAITING: "warning", RUNNING: "success", "terminated": "faint", UNREADABLE: "failure"}
COLUMNS = (
    Column("agent", style="tool"),
    Column("name", least=12, most=24, style="strong"),
    Column("state", styles=_STATES),
    Column("age", style="faint"),
    Column("provider", least=6, most=16),
    Column("tokens", right=True),
    Column("cost", right=True),
    Column("folder", least=10, most=32, keep_end=True, style="faint"),
    Column("title", least=12),
)
# In a narrow terminal these go first, in this order; the id stays.
DROPPED = tuple(
    [column.title for column in COLUMNS].index(title)
    for title in ("cost", "tokens", "provider", "folder", "title", "age", "name", "state")
)


def print_agents(
    env: Environment,
    agents: Iterable[ListedAgent],
    wanted: Wanted,
    *,
    as_json: bool,
    tree: bool = False,
    color: str = "auto",
) -> Exit:
    """Print a row for each agent that is wanted, newest first; name damage on stderr.

    Args:
        tree: print each agent with all that are below it, as a tree.
        color: the value of `--color`.

    Returns the exit code.
    """
    failed = False

    def tell(listed: ListedAgent) -> None:
        nonlocal failed
        failed |= note_damage(env, listed)

    if wants_json(env, as_json):
        lines = _Lines()
        listing = Listing(wanted, lines.add, tell, tree=tree)
        for listed in agents:
            listing.add(listed)
        entries = _in_order(listing, tree=tree)
        print_lines(env, (lines.line(entry.shown) for entry, _ in entries))
    else:
        listing = Listing(wanted, AgentCells(env).of, tell, tree=tree)
        ids: set[str] = set()
        others: set[str] = set()
        for listed in agents:
            ids.add(listed.paths.id)
            others.update(other_names(listed))
            listing.add(listed)
        rows = ((branches(levels), entry.shown) for entry, levels in _in_order(listing, tree=tree))
        table = agent_table(rows, short_length(ids, others), screen_width(env))
        if listing.entries:
            # Cells and styles have escaped what is foreign.
            env.stdout.writelines(line + "\n" for line in table.lines(style_of(env, color)))
        if listing.hidden:
            note(env, f"{counted(listing.hidden, 'closed agent')} left out (--all shows them)")
        elif not listing.entries:
            note(env, "there is no such agent" if wanted != Wanted() else "there are no agents")
    return Exit.PARTIAL if failed else Exit.OK


class _Lines:
    """Rows as lines of JSON in one piece of memory: as many small ones take several times that."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, row: dict[str, Any]) -> tuple[int, int]:
        """Keep a row; return where its line begins and ends."""
        start = len(self._data)
        self._data += orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
        return start, len(self._data)

    def line(self, place: tuple[int, int]) -> bytes:
        """Return a line that was added."""
        return bytes(memoryview(self._data)[slice(*place)])


def _in_order(listing: Listing, *, tree: bool) -> Iterable[tuple[Entry, tuple[bool, ...]]]:
    if tree:
        return listing.as_tree()
    return ((entry, ()) for entry in listing.newest_first())


def note_damage(env: Environment, listed: ListedAgent) -> bool:
    """Name on stderr what is damaged of an agent; return whether anything is."""
    if listed.error is not None:
        note(env, listed.error.message)
    damage = [finding for finding in listed.findings if finding.is_damage]
    for finding in damage:
        note(env, str(finding))
    return listed.error is not None or bool(damage)


class AgentCells:
    """Makes the cells of a table of agents, as of one moment."""

    def __init__(self, env: Environment) -> None:
        self._now = env.now()
        self._home = str(env.home)

    def of(self, row: dict[str, Any]) -> tuple[str, ...]:
        """Return the cells of a row, with the whole id."""
        if "error" in row:
            return (row["agentId"], "", UNREADABLE, *[""] * (len(COLUMNS) - 3))
        title = row["title"] or ""
        if row["question"] is not None:
            title = f"asks for {row['question']['toolName']} · {title}"
        return (
            row["agentId"],
            plain(row["name"] or ""),
            state_of(row),
            age(last_change(row), self._now),
            plain(row["provider"]),
            tokens(row["usage"]["totalTokens"]),
            cost(row["costUsd"]),
            folder_text(row["cwd"], self._home),
            plain(title),
        )


def agent_table(rows: Iterable[tuple[str, tuple[str, ...]]], short: int, width: int) -> Table:
    """Return the table of agents.

    Args:
        rows: cells of `AgentCells`, and what stands before the id.
        short: how many characters of an id are shown.
        width: columns of the terminal.
    """
    shown = [(before + cells[0][:short], *cells[1:]) for before, cells in rows]
    return Table(COLUMNS, DROPPED, shown, width)


def branches(levels: tuple[bool, ...]) -> str:
    """Return what stands before an entry of a tree (see `Listing.as_tree`)."""
    if not levels:
        return ""
    above = "".join("│  " if more else "   " for more in levels[:-1])
    return above + ("├─ " if levels[-1] else "└─ ")


def age(then: str, now: datetime) -> str:
    """Return in words how long ago a time was, or its day (UTC) if that is over a month ago."""
    try:
        moment = times.from_text(then)
    except (ValueError, OverflowError):
        return ""
    seconds = (now - moment) // timedelta(seconds=1)
    if -60 < seconds < 5:  # clocks differ a little
        return "now"
    for size, limit, unit in _UNITS:
        if 0 < seconds < limit:
            return f"{seconds // size} {unit} ago"
    return moment.date().isoformat()


_UNITS = ((1, 60, "s"), (60, 3600, "min"), (3600, 86_400, "h"), (86_400, 31 * 86_400, "d"))


def tokens(count: int) -> str:
    """Return a number of tokens in at most five characters, empty for none."""
    if count < 1000:
        return str(count) if count else ""
    value, unit = float(count), ""
    for unit in "kMGTP":  # noqa: B007, the last one is shown
        value /= 1000
        if value < 999.5:
            break
    return f"{value:.1f}{unit}" if value < 99.95 else f"{value:.0f}{unit}"


def cost(dollars: float | None) -> str:
    """Return what a client reported to have cost; empty where it reported nothing."""
    if dollars is None:
        return ""
    return "<$0.01" if 0 < dollars < 0.005 else f"${dollars:.2f}"


def folder_text(path: str, home: str) -> str:
    """Return a path for people: the home folder is ``~``."""
    if path == home or path.startswith(home.rstrip("/") + "/"):
        path = "~" + path[len(home.rstrip("/")) :]
    return plain(path)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``2 agents``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
