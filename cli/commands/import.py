"""`agentsdir import`."""  # noqa: N999, the word is the command's name

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.made import print_made
from agentsdir.formats.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def run(
    ctx: typer.Context,
    bundle: Annotated[str, typer.Argument(metavar="BUNDLE", help="A tar, a folder, or -")],
    cwd: Annotated[
        str, typer.Option(metavar="DIR", help="Its working directory here; else the one it had")
    ] = "",
    workspace: Annotated[
        str, typer.Option(metavar="DIR", help="Put its captured files here, and work here")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object")] = False,
) -> int:
    """Take an exported agent into this directory, and print its id.

    \b
    Examples:
      agentsdir import agent.tar.gz --workspace ~/work
      ssh there agentsdir export --bundle $id - | agentsdir import - --cwd .

    The bundle is checked whole before anything is written. Where its id, its session or its key is
    taken here, it becomes another agent with the same history. The next `send` puts the transcripts
    where the client finds them. --workspace never writes over a file that is another.
    """
    from tempfile import TemporaryDirectory

    from agentsdir.engine.importing import import_agent

    env: Environment = ctx.obj
    if cwd and workspace:
        raise UsageError("--workspace names the working directory, too; give one of them")
    if cwd and not (env.cwd / cwd).is_dir():
        raise UsageError(f"--cwd {cwd} is no folder")
    world = env.world
    with TemporaryDirectory(prefix="agentsdir-") as scratch:
        made = import_agent(
            world,
            _opened(env, bundle, scratch),
            cwd=str((env.cwd / cwd).resolve()) if cwd else "",
            login=env.login,
            workplace=(env.cwd / workspace).resolve() if workspace else None,
        )
    return print_made(env, world, made, as_json=as_json)


def _opened(env: Environment, bundle: str, scratch: str) -> Path:
    from pathlib import Path

    from agentsdir.engine.importing import unpacked

    path = env.cwd / bundle
    if bundle == "-":
        return unpacked(env.stdin, Path(scratch))
    if path.is_dir():
        return path
    if not path.is_file():
        raise UsageError(f"there is no file or folder {bundle}")
    with path.open("rb") as stream:
        return unpacked(stream, Path(scratch))
