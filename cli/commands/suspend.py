"""`agentsdir suspend`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import print_document, print_json
from agentsdir.cli.services import services_of
from agentsdir.cli.workspaces import capture_and_note
from agentsdir.engine.lookup import list_row
from agentsdir.engine.slots import SessionMultiplexer, suspend
from agentsdir.formats.errors import UsageError
from agentsdir.formats.store.agent import read_agent

_LONGEST = 10.0**9  # seconds; some thirty years


def run(
    ctx: typer.Context,
    agent: Annotated[
        str,
        typer.Argument(
            metavar="[AGENT|SECONDS]",
            help="An id, a session id, a name, or the first 4 characters (or more) of one of them;"
            " @last; with --idle: a time",
        ),
    ] = "",
    wait: options.WaitForTurn = 0,
    capture: Annotated[
        bool,
        typer.Option("--capture", help="Copy the files of its working directory into its folder"),
    ] = False,
    idle: Annotated[
        bool,
        typer.Option("--idle", help="Suspend all sessions that had no input for SECONDS"),
    ] = False,
    as_json: options.JsonRow = False,
) -> None:
    """Suspend an active session; `resume` or `send` makes it active again.

    \b
    Examples:
      agentsdir suspend $id
      agentsdir suspend --capture $id
      agentsdir suspend --idle 3600

    --idle prints the ids of the agents that it suspended (with --json their rows). An agent whose
    turn runs is not suspended. SECONDS is idle_timeout of settings.toml if it is not given.
    """
    env: Environment = ctx.obj
    if idle:
        if capture or wait:
            raise UsageError("--capture and --wait are for one agent, not for --idle")
        _suspend_idle(env, agent, as_json=as_json)
        return
    if not agent:
        raise UsageError("name an agent, or give --idle")
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    services = services_of(env)
    env.count_waits(wait or None)
    state = suspend(services, paths, wait=wait)
    if capture:
        capture_and_note(env, services, paths, wait=wait)
    if as_json:
        durability = services.disk.durability
        print_document(env, {**list_row(paths, state), "durability": durability})


def _suspend_idle(env: Environment, given: str, *, as_json: bool) -> None:
    env.layout.check_version(writing=True)
    services = services_of(env)
    seconds = _seconds(given) if given else services.settings.idle_timeout
    if not given and not seconds:
        raise UsageError("how long? give SECONDS, or set idle_timeout in settings.toml")
    with services.disk.synced_at_end():
        swept = SessionMultiplexer(services).sweep(seconds)
    for agent_id in swept:
        if as_json:
            paths = env.layout.agent(agent_id)
            row = list_row(paths, read_agent(paths).state)
            print_json(env, {**row, "durability": services.disk.durability})
        else:
            env.stdout.write(f"{agent_id}\n")


def _seconds(given: str) -> float:
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _LONGEST:
        raise UsageError(f"{given!r} is no number of seconds")
    return seconds
