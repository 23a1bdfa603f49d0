"""`agentsdir resume`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import print_document
from agentsdir.cli.services import services_of
from agentsdir.cli.workspaces import note_written_files
from agentsdir.engine.bundle import put_back_workspace
from agentsdir.engine.lookup import list_row
from agentsdir.engine.slots import resume
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store.agent import read_agent


def run(
    ctx: typer.Context,
    agent: options.Agent,
    wait: options.WaitForTurn = 0,
    workspace: Annotated[
        bool,
        typer.Option(
            "--workspace", help="Write captured files that are missing to the working directory"
        ),
    ] = False,
    into: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="With --workspace: write them to this folder",
            show_default="this folder, if it is the agent's working directory",
        ),
    ] = "",
    as_json: options.JsonRow = False,
) -> None:
    """Make a suspended session active again. No process is started before the next `send`.

    \b
    Examples:
      agentsdir resume $id
      agentsdir resume --workspace $id
      agentsdir resume --workspace --into ~/work $id

    --workspace writes the files that `suspend --capture` or an import kept. It names each file that
    it writes on stderr, and overwrites no file.
    """
    env: Environment = ctx.obj
    if into and not workspace:
        raise UsageError("--into goes with --workspace")
    if into and not (env.cwd / into).is_dir():
        raise UsageError(f"--into {into} is no folder")
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    if workspace:
        services.check_trust()
        folder = _folder(env, read_agent(paths).state.cwd, into)
        note_written_files(env, put_back_workspace(services, paths, folder))
    env.count_waits(wait or None)
    state = resume(services, paths, wait=wait)
    if as_json:
        durability = services.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})


def _folder(env: Environment, own: str, into: str) -> Path:
    """Return the folder of --into, or else this folder.

    Raises `UsageError` (kind ``another-folder``) if this is not the agent's working directory.
    """
    here = env.cwd.resolve()
    if into:
        return (here / into).resolve()
    if str(here) != own:
        raise UsageError(
            f"the agent's working directory is {own}, and this is {here}",
            hint="run it there, or name the folder: --into DIR",
            kind="another-folder",
        )
    return here
