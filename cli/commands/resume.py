"""`agentsdir resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_document


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait this long for a turn to end; -1: ever")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the agent's row")] = False,
) -> None:
    """Take a suspended session into use again. No process is started before the next `send`.

    \b
    Example:
      agentsdir resume $id
    """
    from agentsdir.engine.agents import find_agent, list_row
    from agentsdir.engine.lifecycle import resume

    env: Environment = ctx.obj
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    world = env.world
    state = resume(world, paths, wait=wait)
    if as_json:
        durability = world.disk.durability.value
        print_document(env, {**list_row(paths, state), "durability": durability})
