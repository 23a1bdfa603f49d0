"""`agentsdir adapters`."""

from __future__ import annotations

from typing import Any

import typer

from agentsdir.adapters import registry
from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_json, print_text, wants_json


def run(
    ctx: typer.Context,
    as_json: options.TerminalJsonLines = False,
) -> None:
    """List the agent architectures that can be read and run.

    \b
    Example:
      agentsdir adapters --json | jq -r 'select(.provides).name'

    Plug-ins are found by the entry-point group `agentsdir.adapters`. A plug-in is imported only
    when it is used, so only its name is listed.
    """
    env: Environment = ctx.obj
    rows: list[dict[str, Any]] = [
        {
            "name": known.name,
            "architecture": known.architecture,
            "reads": known.reader is not None,
            "provides": known.provider is not None,
            "builtIn": True,
            "summary": known.summary,
        }
        for known in registry.built_in()
    ]
    rows += [{"name": name, "builtIn": False} for name in registry.installed_names()]
    for row in rows:
        if wants_json(env, as_json):
            print_json(env, row)
        else:
            sides = [word for word in ("reads", "provides") if row.get(word)]
            summary = row.get("summary", "a plug-in")
            print_text(env, f"{row['name']:<10} {'+'.join(sides):<16} {summary}\n")
