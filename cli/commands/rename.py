"""`agentsdir rename`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_document
from agentsdir.cli.services import services_of
from agentsdir.engine.lookup import find_agent, list_row
from agentsdir.engine.settings import rename


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    name: Annotated[str, typer.Argument(help="What to call it, unique among its siblings")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the agent's row")] = False,
) -> None:
    """Give an agent another name, at work or not.

    \b
    Examples:
      agentsdir rename $id reviewer
      agentsdir rename reviewer 'night shift'

    A name that a live sibling has is refused (exit 1); so is a closed agent (exit 13).
    """
    env: Environment = ctx.obj
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    state = rename(services, paths, name)
    if as_json:
        durability = services.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})
