"""`agentsdir trust`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_json, print_text, wants_json
from agentsdir.cli.trust import distrust, real_path, trust, trusted_roots
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store.layout import ROOT_NAME, Layout


def run(
    ctx: typer.Context,
    folder: Annotated[
        str,
        typer.Argument(
            metavar="[DIR]",
            help="The agents directory to trust",
            show_default="the one that a command here would use",
        ),
    ] = "",
    show: Annotated[
        bool, typer.Option("--list", help="List the agents directories that are trusted")
    ] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Take it off the list")] = False,
    as_json: options.JsonLines = False,
) -> None:
    """Let agents run in an agents directory that was found by search, or is another user's.

    \b
    Examples:
      agentsdir trust
      agentsdir trust ~/project/.agentsdir
      agentsdir trust --list

    A .agentsdir in or above the working directory may have come with a project that you cloned.
    Until it is trusted, `send` starts no provider there (exit 14). Reading needs no trust. An
    agents directory that --root or $AGENTSDIR_ROOT names is trusted if it is your own.
    """
    env: Environment = ctx.obj
    env.check_outside_turn("which agents directories are trusted")
    if show:
        if folder or remove:
            raise UsageError("--list lists all, and goes with no DIR and no --remove")
        for root in trusted_roots(env):
            if wants_json(env, as_json):
                print_json(env, {"type": "trusted", "root": root})
            else:
                print_text(env, f"{root}\n")
        return
    path = env.cwd / folder if folder else env.find_root().folder
    root = real_path(path)
    if remove:
        distrust(env, root)
    else:
        _check_is_root(path)
        trust(env, root)
    if as_json:
        print_json(env, {"type": "untrusted" if remove else "trusted", "root": root})
    else:
        print_text(env, f"{root}\n")


def _check_is_root(path: Path) -> None:
    if not (path.is_dir() and Layout(path).check_version(writing=False)):
        inner = path / ROOT_NAME
        hint = f"did you mean {inner}?" if inner.is_dir() else "`agentsdir new` makes one"
        raise UsageError(f"there is no agents directory {path}", hint=hint)
