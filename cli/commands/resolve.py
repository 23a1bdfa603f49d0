"""`agentsdir resolve`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json
from agentsdir.engine.lookup import list_row, resolve
from agentsdir.formats.store.agent import read_agent


def run(
    ctx: typer.Context,
    strategy: Annotated[
        str, typer.Argument(metavar="STRATEGY", help="most-recent-foreground, or heartbeat")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the agent's row")] = False,
) -> int:
    """Print the id of the agent that is meant by what it is.

    \b
    Examples:
      agentsdir send $(agentsdir resolve most-recent-foreground) 'the build is green'
      agentsdir resolve heartbeat --json | jq -r .lastActivity

    Of the live agents of a kind (users are the foreground) it is the one whose last turn began
    last; where that is the same, the one that was made last. Exits 10 when there is none, and 3
    when an agent that cannot be read was passed over.
    """
    env: Environment = ctx.obj
    found = resolve(env.layout, strategy)
    if as_json:
        print_json(env, list_row(found.paths, read_agent(found.paths).state))
    else:
        env.stdout.write(found.paths.id + "\n")
    for listed in found.unreadable:
        why = listed.error.message if listed.error else "it cannot be read"
        note(env, f"passed over {listed.paths.id}: {why}")
    return Exit.PARTIAL if found.unreadable else Exit.OK
