"""`agentsdir clear-abort`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_json
from agentsdir.cli.services import services_of
from agentsdir.engine.cancel import clear_abort
from agentsdir.engine.lookup import find_agent


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object")] = False,
) -> None:
    """Take back a request to end an agent's running turn, if the turn has not heeded it.

    \b
    Examples:
      agentsdir clear-abort $id
      agentsdir interrupt --no-wait $id; agentsdir clear-abort $id --json | jq .turnId

    Where there is nothing to take back, nothing is recorded. The agents below are asked still.
    """
    env: Environment = ctx.obj
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    with services.disk.settled():
        turn_id = clear_abort(services, paths)
    if as_json:
        said = {"type": "abort-cleared", "agentId": paths.id, "turnId": turn_id}
        print_json(env, {**said, "durability": services.disk.durability})
