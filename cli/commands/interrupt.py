"""`agentsdir interrupt`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record")] = "",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until the turn has ended")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object")] = False,
) -> int:
    """Ask an agent's running turn to end; what it has said so far is kept.

    \b
    Examples:
      agentsdir interrupt $id
      agentsdir interrupt $id --reason 'wrong branch' --no-wait

    Returns when the turn has ended. An agent that runs no turn is not asked, and exits 13.
    """
    from agentsdir.cli.prompts import check_text
    from agentsdir.engine.agents import find_agent
    from agentsdir.engine.interrupts import interrupt

    env: Environment = ctx.obj
    check_text(reason, "reason")
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    world = env.world
    done = interrupt(world, paths, reason, wait=not no_wait)
    if as_json:
        said = {"type": "interrupted", "agentId": paths.id, **done.as_json()}
        print_json(env, {**said, "durability": world.disk.durability.value})
    if not (done.ended or no_wait):
        note(env, f"the turn's process died; `agentsdir restore {paths.id}` ends the turn")
        return Exit.FAILED
    return Exit.OK
