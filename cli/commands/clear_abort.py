"""`agentsdir clear-abort`."""

from __future__ import annotations

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import print_json
from agentsdir.cli.services import services_of
from agentsdir.engine.cancel import clear_abort


def run(
    ctx: typer.Context,
    agent: options.Agent,
    as_json: options.JsonObject = False,
) -> None:
    """Take back a request to end an agent's turn, if the turn has not acted on it yet.

    \b
    Examples:
      agentsdir clear-abort $id
      agentsdir interrupt --no-wait $id; agentsdir clear-abort $id --json | jq .turnId

    If there is no request, nothing is recorded (exit 0). Requests to the agents below it stay.
    """
    env: Environment = ctx.obj
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    with services.disk.synced_at_end():
        turn_id = clear_abort(services, paths)
    if as_json:
        said = {"type": "abort-cleared", "agentId": paths.id, "turnId": turn_id}
        print_json(env, {**said, "durability": services.disk.durability})
