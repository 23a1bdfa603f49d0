"""`agentsdir tag`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import print_document, print_text
from agentsdir.cli.services import services_of
from agentsdir.engine.lookup import list_row
from agentsdir.engine.settings import tag
from agentsdir.formats.store.agent import read_agent

# A tag to remove looks like an option: -hot would be taken for -h.
CONTEXT = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


class Command(TyperCommand):
    """A command that takes -h for --help only in place of the agent."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return what is left of the arguments."""
        return super().parse_args(ctx, ["--help"] if args[:1] == ["-h"] else args)


def run(
    ctx: typer.Context,
    agent: options.Agent,
    tags: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[+TAG|-TAG]...",
            help="+TAG or TAG adds a tag, -TAG removes it; without any, the tags are printed",
        ),
    ] = None,
    as_json: options.JsonRow = False,
) -> None:
    """Add tags to an agent, remove some, or print those it has, one a line.

    \b
    Examples:
      agentsdir tag $id +urgent -later
      agentsdir tag $id
      agentsdir list --json | jq -r 'select(.tags | index("urgent")).agentId'

    Tags are for people and scripts; agentsdir does nothing with them.
    """
    env: Environment = ctx.obj
    paths = find_agent(env, agent)
    given = tags or []
    if given:
        env.layout.check_version(writing=True)
        services = services_of(env)
        add = [one.removeprefix("+") for one in given if not one.startswith("-")]
        remove = [one.removeprefix("-") for one in given if one.startswith("-")]
        state = tag(services, paths, add, remove)
        said = {"durability": services.disk.durability}
    else:
        state, said = read_agent(paths).state, {}
    if as_json:
        print_document(env, {**list_row(paths, state), **said})
    elif not given:
        print_text(env, "".join(f"{one}\n" for one in state.tags))
