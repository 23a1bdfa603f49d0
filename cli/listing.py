"""Agents in rows: a table for people, JSON Lines for programs."""

from __future__ import annotations

from typing import Any

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_text, wants_json
from agentsdir.engine.agents import list_row, unreadable_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.engine.agents import Listed

COLUMNS = ("agentId", "name", "state", "status", "provider", "lastActivity", "title")
WIDE = 48


def print_agents(env: Environment, agents: Iterable[Listed], *, as_json: bool) -> Exit:
    """Print a row for each agent, and say what is damaged; return the exit code for that."""
    rows: list[dict[str, Any]] = []
    failed = False
    plain = not wants_json(env, as_json)
    for listed in agents:
        if listed.reading is None:
            failed = True
            row = unreadable_row(listed)
            note(env, row["error"]["message"])
        else:
            row = list_row(listed.paths, listed.reading.state)
            for finding in listed.reading.findings:
                if finding.is_damage:
                    failed = True
                    note(env, str(finding))
        if plain:
            rows.append(row)
        else:
            print_json(env, row)
    if plain:
        print_text(env, _table(rows))
    return Exit.PARTIAL if failed else Exit.OK


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [list(COLUMNS), *([_cell(row.get(name)) for name in COLUMNS] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(COLUMNS))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in cells
    )


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"
