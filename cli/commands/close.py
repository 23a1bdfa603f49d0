"""`agentsdir close`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json
from agentsdir.cli.services import services_of
from agentsdir.engine.close import close, wait_until_over
from agentsdir.engine.lookup import find_agent


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until running turns have ended")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON Lines")] = False,
) -> int:
    """Close an agent for good, and all agents below it.

    \b
    Examples:
      agentsdir close $id
      agentsdir close --json $id | jq -r .agentId

    A running turn is asked to end. Messages that wait are given up. A closed agent takes no turns
    and no messages; it can still be read, replayed, exported, archived and removed. One that is
    closed already is left as it is.
    """
    env: Environment = ctx.obj
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    done = close(services, paths)
    ours = env.turn  # what closes its own agent is ended with its turn
    turns = [one.turn for one in done.closed if one.turn is not None]
    if not no_wait:
        wait_until_over(services, [one for one in turns if not ours or one.turn_id != ours.turn_id])
    for one in done.closed if as_json else ():
        print_json(env, {**one.as_json(), "durability": services.disk.durability})
    for below, error in done.refused:
        note(env, f"agent {below.id} was not closed: {error.message}")
    return Exit.FAILED if done.refused else Exit.OK
