"""`agentsdir resolve`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json
from agentsdir.engine.lookup import list_row, passed_over, resolve
from agentsdir.formats.store.agent import read_agent


def run(
    ctx: typer.Context,
    strategy: Annotated[
        str, typer.Argument(metavar="STRATEGY", help="most-recent-foreground, or heartbeat")
    ],
    as_json: options.JsonRow = False,
) -> int:
    """Print the id of the most recent agent of a kind.

    \b
    Examples:
      agentsdir send $(agentsdir resolve most-recent-foreground) 'the build is green'
      agentsdir resolve heartbeat --json | jq -r .lastActivity

    most-recent-foreground looks at the live agents of type user, heartbeat at those of type
    heartbeat. The most recent is the one whose last turn began last; of equal ones, the one that
    was made last. It exits 10 if there is none, and 3 if an agent could not be read.
    """
    env: Environment = ctx.obj
    found = resolve(env.layout, strategy)
    if as_json:
        print_json(env, list_row(found.paths, read_agent(found.paths).state))
    else:
        env.stdout.write(found.paths.id + "\n")
    for listed in found.unreadable:
        note(env, passed_over(listed))
    return Exit.PARTIAL if found.unreadable else Exit.OK
