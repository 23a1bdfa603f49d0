"""`agentsdir list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentsdir.cli import options
from agentsdir.cli.agents import print_agents
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_table, wants_json
from agentsdir.engine.lookup import each_agent
from agentsdir.engine.parse import list_native, native_row, stores_at, stores_of
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.engine.lookup import ListedAgent
    from agentsdir.engine.parse import ClientStore

NATIVE_COLUMNS = ("id", "adapter", "modifiedAt", "branch", "cwd", "title")


def run(
    ctx: typer.Context,
    folder: Annotated[
        str,
        typer.Argument(
            metavar="[DIR]",
            help="With --native: the client's storage folder",
            show_default="those in your home folder",
        ),
    ] = "",
    native: Annotated[
        bool,
        typer.Option("--native", help="List the sessions in the clients' own stores, not agents"),
    ] = False,
    everyone: Annotated[
        bool,
        typer.Option(
            "--all", help="List ephemeral agents, too: those that are removed when they are done"
        ),
    ] = False,
    as_json: options.TerminalJsonLines = False,
) -> int:
    """List the agents: a table on a terminal, one JSON object a line in a pipe.

    \b
    Examples:
      agentsdir list
      agentsdir list --json | jq -r 'select(.state=="suspended").agentId'
      agentsdir list --native

    --native lists the sessions that Claude Code keeps below ~/.claude (or $CLAUDE_CONFIG_DIR) and
    Gemini CLI below ~/.gemini (or $GEMINI_CLI_HOME/.gemini), the one written last first.
    """
    env: Environment = ctx.obj
    if native:
        return _print_native(env, _stores(env, folder), as_json=as_json)
    if folder:
        raise UsageError("a DIR goes with --native", hint="--root DIR names an agents directory")
    env.layout.check_version(writing=False)
    agents = (one for one in each_agent(env.layout) if everyone or not _is_ephemeral(one))
    return print_agents(env, agents, as_json=as_json)


def _is_ephemeral(listed: ListedAgent) -> bool:
    return listed.document is not None and bool(listed.document["ephemeral"])


def _stores(env: Environment, folder: str) -> list[ClientStore]:
    if not folder:
        return stores_of(env.home, env.cwd, env.variables)
    if not (env.cwd / folder).is_dir():
        raise UsageError(f"{folder} is no folder")
    return stores_at(env.cwd / folder)


def _print_native(env: Environment, stores: Iterable[ClientStore], *, as_json: bool) -> Exit:
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
