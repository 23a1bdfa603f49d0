"""`agentsdir schema`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_document, print_json, print_text
from agentsdir.formats.errors import UsageError
from agentsdir.schemas import catalogue


def run(
    ctx: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]", help="The schema to print", show_default="a list of all schemas"
        ),
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the list as JSON Lines, and errors as JSON, too")
    ] = False,
) -> None:
    """Print a JSON Schema (2020-12) of the format, or list them.

    \b
    Examples:
      agentsdir schema
      agentsdir schema block > block.schema.json
      agentsdir schema --json | jq -r .id

    A schema refers to other schemas by the names that the list has.
    """
    env: Environment = ctx.obj
    if kind:
        check_kind(kind)
        print_document(env, catalogue.load(kind))
        return
    width = max(len(known) for known in catalogue.kinds())
    for known in catalogue.kinds():
        schema = catalogue.load(known)
        if as_json:
            print_json(env, {"kind": known, "id": schema["$id"], "title": schema["title"]})
        else:
            print_text(env, f"{known:<{width}}  {schema['title']}\n")


def check_kind(kind: str) -> None:
    """Raise `UsageError` naming what is close, unless there is a schema of this kind."""
    if kind in catalogue.kinds():
        return
    close = get_close_matches(kind, catalogue.kinds(), cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "`agentsdir schema` lists them"
    raise UsageError(f"there is no schema {kind!r}", hint=hint, kind="no-such-schema")
