"""`agentsdir import`."""  # noqa: N999, the word is the command's name

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.agents import print_made
from agentsdir.cli.environment import Environment
from agentsdir.cli.output import note
from agentsdir.cli.progress import working
from agentsdir.cli.services import services_of
from agentsdir.cli.workspaces import note_written_files
from agentsdir.engine.bundle import Unpacked, import_agent, unpacked
from agentsdir.engine.parse import stores_of
from agentsdir.formats.errors import UsageError


def run(
    ctx: typer.Context,
    bundle: Annotated[
        str,
        typer.Argument(
            metavar="BUNDLE",
            help="What `export --bundle` or `inspect --saved` wrote: a tar, a folder, or JSON; "
            "- for stdin",
        ),
    ],
    cwd: Annotated[
        str,
        typer.Option(
            metavar="DIR", help="The agent's working directory", show_default="this folder"
        ),
    ] = "",
    workspace: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="Write the captured files to this folder, and make it the working directory",
        ),
    ] = "",
    as_json: options.JsonObject = False,
) -> int:
    """Take an exported agent into this agents directory, and print its id.

    \b
    Examples:
      agentsdir import agent.tar.gz --workspace ~/work
      ssh there agentsdir export --bundle $id - | agentsdir import - --cwd .
      ssh there agentsdir inspect --saved $id | agentsdir import -

    The whole bundle is checked before anything is written. The agents that it spawned come with it.
    If its id, its session id or its key is taken here, it becomes another agent with the same
    history, and without those. The next `send` puts the transcripts where the client finds them.
    The working directory that the bundle names is never used. --workspace names each file that it
    writes on stderr, and overwrites no file.
    """
    env: Environment = ctx.obj
    if cwd and workspace:
        raise UsageError("--workspace names the working directory, too; give one of them")
    if cwd and not (env.cwd / cwd).is_dir():
        raise UsageError(f"--cwd {cwd} is no folder")
    services = services_of(env)
    with TemporaryDirectory(prefix="agentsdir-") as scratch, working(env, lambda: "importing"):
        done = import_agent(
            services,
            _opened(env, bundle, scratch),
            cwd=str((env.cwd / cwd).resolve()),
            login=env.login,
            workplace=(env.cwd / workspace).resolve() if workspace else None,
            stores=stores_of(env.home, env.cwd, env.variables),
        )
    code = print_made(env, services, done.made, as_json=as_json)
    if done.put_back is not None:
        note_written_files(env, done.put_back)
    here = str(env.cwd.resolve())
    if not (cwd or workspace) and done.former_cwd != here:
        note(
            env,
            f"its working directory is {here}, not {done.former_cwd} as before; "
            f"`agentsdir set {done.made.agent_id} cwd=DIR` gives it another",
        )
    return code


def _opened(env: Environment, bundle: str, scratch: str) -> Unpacked:
    path = env.cwd / bundle
    if bundle == "-":
        return unpacked(env.stdin, Path(scratch))
    if path.is_dir():
        return Unpacked(path)
    if not path.is_file():
        raise UsageError(f"there is no file or folder {bundle}")
    with path.open("rb") as stream:
        return unpacked(stream, Path(scratch))
