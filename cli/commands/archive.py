"""`agentsdir archive`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.agent_table import print_agents
from agentsdir.cli.agents import Refusals
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agents
from agentsdir.cli.output import note, print_json
from agentsdir.cli.services import services_of
from agentsdir.engine.close import archive_agent, unarchive_agent
from agentsdir.engine.listing import Wanted
from agentsdir.engine.lookup import each_agent
from agentsdir.formats.errors import UsageError


def run(
    ctx: typer.Context,
    agents: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT]...",
            help="Ids, session ids, whole names, or the first 4 characters (or more) of ids; @last",
        ),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Bring archived agents back")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the archived agents")] = False,
    as_json: options.JsonLines = False,
) -> int:
    """Move agents to the archive, where only --list and --undo find them.

    \b
    Examples:
      agentsdir archive $id
      agentsdir archive --list
      agentsdir archive --undo $id

    Nothing is deleted: an agent's folder is moved to archive/ as it is. An active session is
    suspended first. An agent whose turn runs is not archived (exit 11). An agent is not brought
    back if another one has its name or key by now (exit 1). Damaged agents are moved, too, and
    reported (exit 3).
    """
    env: Environment = ctx.obj
    layout = env.layout
    if show:
        if agents or undo:
            raise UsageError("--list lists all, and goes with no agent and no --undo")
        layout.check_version(writing=False)
        archived = each_agent(layout, archived=True)
        return print_agents(env, archived, Wanted(everyone=True), as_json=as_json)
    if not agents:
        raise UsageError("no agent is named", hint="`agentsdir archive --list` shows archived ones")
    chosen = find_agents(env, agents, archived=undo)
    layout.check_version(writing=True)
    services = services_of(env)
    refusals = Refusals(env, as_json=as_json)
    damaged = False
    for paths in chosen:
        with refusals.noted():
            moved = (unarchive_agent if undo else archive_agent)(services, paths)
            if moved.error is not None:
                damaged = True
                note(env, f"{paths.id} was moved as it is: {moved.error.message}")
            if as_json:
                durability = services.disk.durability
                print_json(env, {**moved.as_json(), "durability": durability})
    return refusals.code or (Exit.PARTIAL if damaged else Exit.OK)
