"""`agentsdir fork`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.agents import print_made
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.services import services_of
from agentsdir.engine.create import fork_agent


def run(
    ctx: typer.Context,
    agent: options.Agent,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The new agent's name",
            show_default="none; a subagent gets one of its own",
        ),
    ] = "",
    as_json: options.JsonObject = False,
) -> int:
    """Make a new agent with the history of another one, and print its id.

    \b
    Examples:
      other=$(agentsdir fork $id)
      agentsdir fork reviewer --name second-opinion

    The first agent stays as it is. If its turn runs, the fork has the history up to the end of the
    turn before. The fork of a subagent is a subagent of the same parent; any other fork is a user's
    agent. Damaged lines of a transcript are left out of the copy, and reported (exit 3).
    """
    env: Environment = ctx.obj
    paths = find_agent(env, agent)
    services = services_of(env)
    made = fork_agent(services, paths, name=name, login=env.login)
    return print_made(env, services, made, as_json=as_json)
