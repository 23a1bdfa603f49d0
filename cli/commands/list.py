"""`agentsdir list`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment


def run(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="JSON Lines on a terminal too")] = False,
) -> int:
    """List the agents: a table on a terminal, one JSON object a line in a pipe.

    \b
    Examples:
      agentsdir list
      agentsdir list --json | jq -r 'select(.state=="suspended").agentId'
    """
    from agentsdir.cli.listing import print_agents
    from agentsdir.engine.agents import each_agent

    env: Environment = ctx.obj
    env.layout.check_version(writing=False)
    return print_agents(env, each_agent(env.layout), as_json=as_json)
