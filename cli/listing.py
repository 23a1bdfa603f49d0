"""Agents in rows: a table for people, JSON Lines for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_text, wants_json
from agentsdir.engine.lookup import list_row, unreadable_row
from agentsdir.engine.parse import list_native, native_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.lookup import Listed
    from agentsdir.engine.parse import Store

COLUMNS = ("agentId", "name", "state", "status", "provider", "lastActivity", "title")
NATIVE_COLUMNS = ("id", "adapter", "modifiedAt", "branch", "cwd", "title")
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
        print_text(env, _table(rows, COLUMNS))
    return Exit.PARTIAL if failed else Exit.OK


def print_native(env: Environment, stores: Iterable[Store], *, as_json: bool) -> Exit:
    """Print a row for each session in the clients' stores; return the exit code."""
    refused: list[OSError] = []

    def refuse(error: OSError) -> None:
        refused.append(error)
        note(env, f"cannot read {error.filename}: {error.strerror}")

    rows: list[dict[str, Any]] = []
    plain = not wants_json(env, as_json)
    for architecture, session in list_native(stores, refuse):
        row = native_row(architecture, session)
        if plain:
            rows.append(row)
        else:
            print_json(env, row)
    if plain:
        print_text(env, _table(rows, NATIVE_COLUMNS))
    return Exit.PARTIAL if refused else Exit.OK


def _table(rows: list[dict[str, Any]], columns: Sequence[str]) -> str:
    cells = [list(columns), *([_cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in cells
    )


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"
