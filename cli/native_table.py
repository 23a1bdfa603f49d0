"""The sessions in the real clients' own stores, for `list --native`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_table, wants_json
from agentsdir.engine.parse import list_native, native_row, stores_at, stores_of
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.parse import ClientStore

NATIVE_COLUMNS = ("id", "adapter", "modifiedAt", "branch", "cwd", "title")


def stores_in(env: Environment, folder: str) -> list[ClientStore]:
    """Return the stores of this user's clients, or a folder as one of each client.

    Raises `UsageError` for what is no folder.
    """
    if not folder:
        return stores_of(env.home, env.cwd, env.variables)
    if not (env.cwd / folder).is_dir():
        raise UsageError(f"{folder} is no folder")
    return stores_at(env.cwd / folder)


def print_native(env: Environment, stores: Iterable[ClientStore], *, as_json: bool) -> Exit:
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
        print_table(env, rows, NATIVE_COLUMNS)
    return Exit.PARTIAL if refused else Exit.OK
