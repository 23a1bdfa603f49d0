"""`agentsdir validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.commands.schema import check_kind
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.output import note, print_json, print_text
from agentsdir.cli.progress import working
from agentsdir.engine.validate.files import (
    CheckCounts,
    NothingToValidate,
    validate_path,
    validate_source,
)
from agentsdir.engine.workers import available_processors
from agentsdir.formats.errors import UsageError
from agentsdir.formats.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.formats.findings import Finding


def run(
    ctx: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH|-]...",
            help="Agents directories, agents, files, folders, or - for stdin",
            show_default="the agents directory in use",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Check the files against this schema; `agentsdir schema` lists them",
            show_default="by name and content",
        ),
    ] = "",
    modes: Annotated[
        bool | None,
        typer.Option(
            "--modes/--no-modes",
            help="Report, or do not report, files that other users may read or write",
            show_default="--modes without a PATH, else --no-modes",
        ),
    ] = None,
    jobs: options.Jobs = 0,
    as_json: options.JsonLines = False,
) -> int:
    """Check files against the format, and an agents directory against itself.

    \b
    Examples:
      agentsdir validate
      agentsdir validate fixtures/ --json | jq -r 'select(.severity=="error").file'
      agentsdir send $id --events hello | agentsdir validate -

    Nothing is changed. It exits 1 if a problem is more than a remark.
    """
    env: Environment = ctx.obj
    operands = paths or [str(env.layout.root)]
    _check_operands(env, operands, kind, given=bool(paths))
    tally = CheckCounts()
    failed = False
    refused: list[NothingToValidate] = []
    for operand in operands:
        wide = not paths if modes is None else modes
        try:
            with working(env, lambda: f"checked {tally.agents:,} agents, {tally.files:,} files"):
                for finding in _findings(env, operand, tally, kind, modes=wide, jobs=jobs):
                    failed = failed or finding.is_damage
                    with env.without_status():
                        if as_json:
                            print_json(env, finding.as_problem())
                        else:
                            print_text(env, f"{finding}\n")
        except NothingToValidate as error:
            refused.append(error)
    env.stdout.flush()
    note(env, f"checked: agents {tally.agents}, files {tally.files}, records {tally.records}")
    if refused:
        for other in refused[:-1]:
            note(env, other.message)
        raise refused[-1]
    return Exit.FAILED if failed else Exit.OK


def _findings(
    env: Environment, operand: str, tally: CheckCounts, kind: str, *, modes: bool, jobs: int
) -> Iterator[Finding]:
    if operand == "-":
        return validate_source(Source.from_stream("-", env.stdin), tally, kind=kind)
    path = env.cwd / operand
    # Findings show the path as it was given.
    name = str(Path(operand))
    jobs = jobs or available_processors()
    return validate_path(path, name, tally, kind=kind, modes=modes, jobs=jobs)


def _check_operands(env: Environment, operands: list[str], kind: str, *, given: bool) -> None:
    for operand in operands:
        path = env.cwd / operand
        if operand == "-" or path.exists():
            if kind and operand != "-" and path.is_dir():
                raise UsageError(f"--kind is for files, and {operand} is a folder")
        elif given:
            raise UsageError(f"there is no file or folder {operand}")
        else:
            raise NothingToValidate(
                f"there is no agents directory {operand}, so nothing was validated",
                hint="`agentsdir new` makes one; --root DIR or a PATH names another",
            )
    if kind:
        check_kind(kind)
