"""`agentsdir spawn`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsdir.cli import target_options
from agentsdir.cli.environment import Environment
from agentsdir.cli.seconds import check_seconds
from agentsdir.cli.spawning import Asked, spawn


def run(
    ctx: typer.Context,
    prompt: Annotated[
        str | None, typer.Argument(help="Its task; - or nothing reads stdin, if no file has one")
    ] = None,
    parent: Annotated[
        str, typer.Option(metavar="AGENT", help="Whose subagent; in a turn: who runs it")
    ] = "",
    name: Annotated[str, typer.Option(help="Unique among siblings; else one is made")] = "",
    provider: Annotated[str, typer.Option(help="Who answers; else the parent's")] = "",
    model: Annotated[str, typer.Option(help="The provider's model; else the parent's")] = "",
    system: Annotated[str, typer.Option(help="The system prompt")] = "",
    profile: Annotated[str, typer.Option(help="A profile of the root; else the parent's")] = "",
    cwd: Annotated[str, typer.Option(metavar="DIR", help="Its directory; else the parent's")] = "",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="A setting of the provider"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An agent file; options go before it")
    ] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What fills in {{NAME}} in the file"),
    ] = None,
    max_ticks: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Model calls a turn; else the parent's")
    ] = None,
    no_stdin: target_options.NoStdin = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Print its id and run it in the background")
    ] = False,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Remove it once its answer is given")
    ] = False,
    events: Annotated[bool, typer.Option("--events", help="Print stream events instead")] = False,
    wait: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Wait this long for a slot; -1: ever")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            min=0, metavar="SECONDS", callback=check_seconds, help="End its turn after this long"
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object")] = False,
) -> None:
    """Give a task to a new subagent and print its answer as it comes.

    \b
    Examples:
      git diff | agentsdir spawn 'review this' --parent $id --name reviewer
      agentsdir spawn --parent $id --file researcher.toml --prop topic=foxes
      child=$(agentsdir spawn 'count the tests' --parent $id --detach)

    The subagent sees nothing of its parent's conversation; it has its provider, model, directory
    and profile unless told otherwise. In a turn of an agent (a tool that calls this) the
    subagent is the agent's, its id is printed at once, and it runs when the turn is over; its
    answer is the agent's next message.

    An agent file is TOML: provider, model, system, prompt, profile, max_ticks, and a table props
    with what {{NAME}} in these texts stands for where --prop does not say.
    """
    env: Environment = ctx.obj
    asked = Asked(
        prompt=prompt,
        parent=parent,
        name=name,
        provider=provider,
        model=model,
        system=system,
        profile=profile,
        cwd=cwd,
        options=option or [],
        file=file,
        props=prop or [],
        max_ticks=max_ticks,
        no_stdin=no_stdin,
        detach=detach,
        ephemeral=ephemeral,
        events=events,
        wait=wait,
        timeout=timeout,
        as_json=as_json,
    )
    spawn(env, asked)
