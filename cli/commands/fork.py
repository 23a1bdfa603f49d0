"""`agentsdir fork`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.agents import print_made
from agentsdir.cli.environment import Environment
from agentsdir.cli.services import services_of
from agentsdir.engine.create import fork_agent
from agentsdir.engine.lookup import find_agent


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    name: Annotated[str, typer.Option(help="A name for the new agent")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object")] = False,
) -> int:
    """Make an agent that goes on from where another one is, and print its id.

    \b
    Examples:
      other=$(agentsdir fork $id)
      agentsdir fork reviewer --name second-opinion

    The first agent stays as it is. One at work is forked as it was when its last turn ended. A
    fork is a user's agent of its own, and of a subagent another subagent. Damaged lines of a
    transcript are left out of the copy, and named (exit 3).
    """
    env: Environment = ctx.obj
    paths = find_agent(env.layout, agent)
    services = services_of(env)
    made = fork_agent(services, paths, name=name, login=env.login)
    return print_made(env, services, made, as_json=as_json)
