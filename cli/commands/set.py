"""`agentsdir set`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.options import read_pairs
from agentsdir.cli.output import print_document
from agentsdir.cli.services import services_of
from agentsdir.engine.lookup import list_row
from agentsdir.engine.settings import set_folder
from agentsdir.formats.errors import SessionStateError, UsageError

KEYS = ("cwd",)


def run(
    ctx: typer.Context,
    agent: options.Agent,
    values: Annotated[
        list[str],
        typer.Argument(metavar="KEY=VALUE...", help="cwd=DIR: the agent's working directory"),
    ],
    wait: options.WaitForTurn = 0,
    as_json: options.JsonRow = False,
) -> None:
    """Change a setting of an agent: its working directory.

    \b
    Examples:
      agentsdir set $id cwd=.
      agentsdir set reviewer cwd=~/moved/project

    The next `send` runs in that folder. If the session is a client's, it puts the transcripts where
    the client looks for those of that folder. A turn cannot change settings (exit 13).
    """
    env: Environment = ctx.obj
    given = read_pairs("set", values)
    if unknown := sorted(set(given) - set(KEYS)):
        raise UsageError(f"there is no setting {unknown[0]!r}", hint=f"known: {', '.join(KEYS)}")
    if env.turn is not None:
        raise SessionStateError("a turn cannot change the settings of an agent", kind="in-turn")
    folder = env.cwd / given["cwd"]
    if not folder.is_dir():
        raise UsageError(f"cwd={given['cwd']} is no folder")
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    env.count_waits(wait or None)
    state = set_folder(services, paths, str(folder.resolve()), wait=wait)
    if as_json:
        durability = services.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})
