"""`agentsdir rename`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import print_document
from agentsdir.cli.services import services_of
from agentsdir.engine.lookup import list_row
from agentsdir.engine.settings import rename


def run(
    ctx: typer.Context,
    agent: options.Agent,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The new name, unique among live siblings")
    ],
    as_json: options.JsonRow = False,
) -> None:
    """Give an agent another name, even while its turn runs.

    \b
    Examples:
      agentsdir rename $id reviewer
      agentsdir rename reviewer 'night shift'

    A name that a live sibling has is refused (exit 1). A closed agent keeps its name (exit 13).
    """
    env: Environment = ctx.obj
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    state = rename(services, paths, name)
    if as_json:
        durability = services.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})
