"""`agentsdir export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note
from agentsdir.cli.progress import working
from agentsdir.cli.services import services_of
from agentsdir.cli.workspaces import capture_and_note
from agentsdir.engine.bundle import export_bundle, export_transcripts
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store import bundles

if TYPE_CHECKING:
    from agentsdir.engine.bundle import Exported


def run(
    ctx: typer.Context,
    agent: options.Agent,
    dest: Annotated[
        str,
        typer.Argument(
            metavar="DEST",
            help="A new or empty folder, a new .tar, .tar.gz or .tgz, or - for a tar on stdout",
        ),
    ],
    bundle: Annotated[
        bool, typer.Option("--bundle", help="Export the whole agent, for `agentsdir import`")
    ] = False,
    workspace: Annotated[
        bool,
        typer.Option(
            "--workspace",
            help="Export the files of its working directory, too; implies --bundle",
        ),
    ] = False,
    as_json: options.JsonErrors = False,
) -> int:
    """Write an agent's transcripts, or the whole agent, to a folder or a tar.

    \b
    Examples:
      agentsdir export $id transcripts/
      agentsdir export --workspace $id agent.tar.gz
      agentsdir export --bundle $id - | ssh there agentsdir import -

    The transcripts are the client's own files, byte for byte. Credentials and settings are not
    exported: a bundle has only what the log names.
    """
    del as_json
    env: Environment = ctx.obj
    paths = find_agent(env, agent)
    target = env.cwd / dest
    if dest != "-" and target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError(f"{dest} is there already", hint="name a new file, or an empty folder")
    if workspace:
        env.layout.check_version(writing=True)
        capture_and_note(env, services_of(env), paths)
    with working(env, lambda: "exporting"):
        exported = (
            export_bundle(env.layout, paths) if bundle or workspace else export_transcripts(paths)
        )
        _write(env, exported, dest)
    damage = [finding for finding in exported.findings if finding.is_damage]
    for finding in damage:
        note(env, str(finding))
    return Exit.PARTIAL if damage else Exit.OK


def _write(env: Environment, exported: Exported, dest: str) -> None:
    target = env.cwd / dest
    if dest == "-":
        if env.stdout.isatty():
            raise UsageError("a tar is not for a terminal", hint="redirect it, or name a file")
        env.stdout.flush()
        bundles.pack(exported.files, env.stdout.buffer, exported.moment, gzipped=False)
    elif dest.endswith(bundles.PACKED):
        with bundles.new_file(target) as stream:
            gzipped = dest.endswith(bundles.GZIPPED)
            bundles.pack(exported.files, stream, exported.moment, gzipped=gzipped)
    else:
        bundles.write_folder(exported.files, target)
