"""`agentsdir new`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.agents import print_made
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import agent_reference
from agentsdir.cli.options import NEW_AGENT, GroupedCommand, read_pairs
from agentsdir.cli.services import services_of
from agentsdir.engine.create import CreatedAgent, NewAgent, adopt, create_agent, find_or_create
from agentsdir.engine.parse import stores_of
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.engine.services import Services

TYPE = "Type, and what the type needs"
EXISTING = "Existing session or agent"

Command = GroupedCommand


def run(
    ctx: typer.Context,
    provider: options.Provider = "",
    model: options.Model = "",
    system: options.System = "",
    option: options.Option = None,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", rich_help_panel=NEW_AGENT, help="Its name, unique among live siblings"
        ),
    ] = "",
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=NEW_AGENT,
            help="Write the files of profiles/NAME in the agents directory into its working"
            " directory before its turns",
        ),
    ] = "",
    permission_mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            rich_help_panel=NEW_AGENT,
            help="The client's permission mode: default or plan; `agentsdir set` and config.toml"
            " take its others, too",
            show_default="that of config.toml, or else the client's",
        ),
    ] = "",
    cwd: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            rich_help_panel=NEW_AGENT,
            help="Its working directory",
            show_default="this folder; with --from, the session's",
        ),
    ] = "",
    fallback: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=NEW_AGENT,
            help="A provider that answers if the one before it fails; may be repeated",
            show_default="those of settings.toml",
        ),
    ] = None,
    max_ticks: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            rich_help_panel=NEW_AGENT,
            help="How many model calls a turn may take; 0: 10, or no limit if a client makes them",
        ),
    ] = 0,
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="TYPE",
            rich_help_panel=TYPE,
            help="user, cron, heartbeat or subagent",
        ),
    ] = "user",
    connector: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            rich_help_panel=TYPE,
            help="Of a user: where the person writes, such as telegram; needs --user and --channel",
            show_default="cli",
        ),
    ] = "",
    user: Annotated[
        str,
        typer.Option(
            metavar="ID",
            rich_help_panel=TYPE,
            help="Of a user: the person's id at the connector",
            show_default="your login name",
        ),
    ] = "",
    channel: Annotated[
        str,
        typer.Option(
            metavar="ID",
            rich_help_panel=TYPE,
            help="Of a user: the conversation's id at the connector",
            show_default="the agent's id",
        ),
    ] = "",
    cron: Annotated[
        str,
        typer.Option(metavar="UID", rich_help_panel=TYPE, help="Of a cron agent: the task's uid"),
    ] = "",
    parent: Annotated[
        str, typer.Option(metavar="AGENT", rich_help_panel=TYPE, help="Of a subagent: its parent")
    ] = "",
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FILE|DIR|ID|AGENT",
            rich_help_panel=EXISTING,
            help="Go on with a session of Claude Code or Gemini CLI: its transcript, its folder,"
            " its id, or an agent that has it",
        ),
    ] = "",
    get: Annotated[
        bool,
        typer.Option(
            "--get",
            rich_help_panel=EXISTING,
            help="If an agent has the name, the key or the session already, print its id and change"
            " nothing",
        ),
    ] = False,
    as_json: options.JsonObject = False,
) -> int:
    """Create an agent and print its id.

    \b
    Examples:
      id=$(agentsdir new)
      agentsdir new --provider script --option file=talk.jsonl --name demo
      agentsdir new --provider claude --fallback gemini
      agentsdir new --type cron --cron nightly-report --get
      agentsdir new --from 5f0c1a7b

    Nothing runs before the first `agentsdir send`. With --from, the history of the session is read
    and its transcript is stored with the agent. The first `send` goes on with it in the folder
    where it began, or in --cwd. A session that is not in a client's own store goes on in this
    folder.

    At most one live agent has a name (among its siblings), a conversation, a task, the heartbeat or
    a native session. A second one is refused, unless --get is given.
    """
    env: Environment = ctx.obj
    folder = env.cwd / cwd
    if not folder.is_dir():
        raise UsageError(f"--cwd {folder} is no folder")
    if origin and provider:
        raise UsageError("--from takes the provider of the session; --provider does not go with it")
    services = services_of(env)
    wanted = NewAgent(
        kind=kind,
        provider=provider,
        model=model,
        system_prompt=system,
        profile=profile,
        permission_mode=permission_mode,
        cwd=str(folder.resolve()) if cwd or not origin else "",
        name=name,
        login=env.login,
        connector=connector,
        user=user,
        channel=channel,
        cron=cron,
        parent=agent_reference(env, parent),
        options=read_pairs("--option", option or ()),
        fallbacks=tuple(fallback or ()),
        max_ticks=max_ticks,
    )
    made = (
        _adopt(env, services, wanted, origin, get=get)
        if origin
        else _make(services, wanted, get=get)
    )
    return print_made(env, services, made, as_json=as_json)


def _make(services: Services, wanted: NewAgent, *, get: bool) -> CreatedAgent:
    if not get:
        return CreatedAgent(create_agent(services, wanted), [])
    return CreatedAgent(find_or_create(services, wanted).paths.id, [])


def _adopt(
    env: Environment, services: Services, wanted: NewAgent, origin: str, *, get: bool
) -> CreatedAgent:
    path = env.cwd / origin
    there: Path | str = path if path.exists() else agent_reference(env, origin)
    stores = stores_of(env.home, env.cwd, env.variables)
    return adopt(
        services,
        wanted,
        there,
        stores,
        home=env.home,
        variables=env.variables,
        here=str(env.cwd.resolve()),
        get=get,
    )
