"""`agentsdir suspend`."""

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
    capture: Annotated[
        bool, typer.Option("--capture", help="Keep the files of its working directory with it")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the agent's row")] = False,
) -> None:
    """Take an active session out of use; `resume` or `send` takes it up again.

    \b
    Examples:
      agentsdir suspend $id
      agentsdir suspend --capture $id
    """
    from agentsdir.engine.agents import find_agent, list_row
    from agentsdir.engine.suspending import suspend

    env: Environment = ctx.obj
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    world = env.world
    state = suspend(world, paths, wait=wait)
    if capture:
        from agentsdir.cli.captures import capture_now

        capture_now(env, world, paths, wait=wait)
    if as_json:
        durability = world.disk.durability.value
        print_document(env, {**list_row(paths, state), "durability": durability})
