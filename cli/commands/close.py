"""`agentsdir close`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note, print_json
from agentsdir.cli.services import services_of
from agentsdir.engine.close import close, end_closed_turns


def run(
    ctx: typer.Context,
    agent: options.WholeAgent,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Return at once, before the running turns have ended")
    ] = False,
    as_json: options.JsonLines = False,
) -> int:
    """Close an agent and all agents below it, for good.

    \b
    Examples:
      agentsdir close $id
      agentsdir close --json $id | jq -r .agentId

    Running turns are asked to end. Messages that wait are not delivered any more. A closed agent
    takes no turns and no messages; it can still be read, replayed, exported, archived and removed.
    To close a closed agent changes nothing.
    """
    env: Environment = ctx.obj
    paths = find_agent(env, agent, whole_name=True)
    env.layout.check_version(writing=True)
    services = services_of(env)
    done = close(services, paths)
    ours = env.turn  # a command in a turn ends with that turn, so it does not wait for it
    turns = [one.turn for one in done.closed if one.turn is not None]
    if not no_wait:
        end_closed_turns(
            services, [one for one in turns if not ours or one.turn_id != ours.turn_id]
        )
    for one in done.closed if as_json else ():
        print_json(env, {**one.as_json(), "durability": services.disk.durability})
    for below, error in done.refused:
        note(env, f"agent {below.id} was not closed: {error.message}")
    return Exit.FAILED if done.refused else Exit.OK
