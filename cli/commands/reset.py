"""`agentsdir reset`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import print_document
from agentsdir.cli.prompts import check_text
from agentsdir.cli.services import services_of
from agentsdir.engine.close import reset
from agentsdir.engine.lookup import list_row


def run(
    ctx: typer.Context,
    agent: options.WholeAgent,
    message: Annotated[
        str, typer.Argument(metavar="[MESSAGE]", help="A text to record with the reset")
    ] = "",
    wait: options.WaitForTurn = 0,
    as_json: options.JsonRow = False,
) -> None:
    """Begin an agent's history anew: its next turn knows nothing of the turns before.

    \b
    Examples:
      agentsdir reset $id
      agentsdir reset $id 'a new task' && agentsdir send $id 'hello'

    Nothing is deleted: `replay` and `inspect` still show the turns before.
    """
    env: Environment = ctx.obj
    check_text(message, "message")
    paths = find_agent(env, agent, whole_name=True)
    env.layout.check_version(writing=True)
    services = services_of(env)
    env.count_waits(wait or None)
    state = reset(services, paths, message, wait=wait)
    if as_json:
        durability = services.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})
