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
    workspace: Annotated[
        bool, typer.Option("--workspace", help="Put captured files back that are missing")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the agent's row")] = False,
) -> None:
    """Take a suspended session into use again. No process is started before the next `send`.

    \b
    Examples:
      agentsdir resume $id
      agentsdir resume --workspace $id

    --workspace writes what `suspend --capture` or an import kept into the working directory; it
    never writes over a file that is another.
    """
    from agentsdir.engine.agents import find_agent, list_row
    from agentsdir.engine.resuming import resume

    env: Environment = ctx.obj
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    world = env.world
    if workspace:
        from agentsdir.engine.capturing import put_back_workspace

        put_back_workspace(paths)
    state = resume(world, paths, wait=wait)
    if as_json:
        durability = world.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})
