"""`agentsdir new`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli.agents import print_made
from agentsdir.cli.environment import Environment
from agentsdir.cli.options import read_pairs
from agentsdir.cli.services import services_of
from agentsdir.engine.create import Made, NewAgent, adopt, create_agent, find_or_create
from agentsdir.engine.parse import stores_of
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.engine.services import Services


def run(
    ctx: typer.Context,
    provider: Annotated[
        str, typer.Option(help="Who answers, if not what settings.toml says, or else echo")
    ] = "",
    model: Annotated[str, typer.Option(help="The provider's model")] = "",
    system: Annotated[str, typer.Option(help="The system prompt")] = "",
    name: Annotated[str, typer.Option(help="A name to call it by, unique among siblings")] = "",
    profile: Annotated[
        str, typer.Option(help="A profile in the root's profiles/, for its workspace")
    ] = "",
    permission_mode: Annotated[
        str, typer.Option(metavar="MODE", help="default or plan; config.toml can say more")
    ] = "",
    cwd: Annotated[str, typer.Option(metavar="DIR", help="Its working directory; else here")] = "",
    kind: Annotated[str, typer.Option("--type", help="user, cron, heartbeat, subagent")] = "user",
    connector: Annotated[str, typer.Option(help="user: where the person writes from")] = "",
    user: Annotated[str, typer.Option(help="user: the person's id there")] = "",
    channel: Annotated[str, typer.Option(help="user: the conversation there")] = "",
    cron: Annotated[str, typer.Option(metavar="UID", help="cron: the task's uid")] = "",
    parent: Annotated[str, typer.Option(metavar="AGENT", help="subagent: who spawned it")] = "",
    origin: Annotated[
        str, typer.Option("--from", metavar="FILE|DIR|ID|AGENT", help="Go on with a native session")
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="A setting of the provider"),
    ] = None,
    fallback: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Who answers when that one fails; may be repeated"),
    ] = None,
    max_ticks: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many model calls a turn may take")
    ] = 0,
    get: Annotated[
        bool,
        typer.Option(
            "--get", help="Print the agent that has this name, key or session, if one has"
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object")] = False,
) -> int:
    """Create an agent and print its id.

    \b
    Examples:
      id=$(agentsdir new)
      agentsdir new --provider script --option file=talk.jsonl --name demo
      agentsdir new --provider claude --fallback gemini
      agentsdir new --type cron --cron nightly-report --get
      agentsdir new --from 5f0c1a7b

    Nothing runs until the first `agentsdir send`. --from makes an agent of a session of Claude
    Code or Gemini CLI, by its file, its folder or its id: its history is read, its transcript is
    kept, and the first `send` goes on with it in the folder where it began, or in --cwd. One that
    is not in a client's own store works where this command runs.

    A name (among siblings), a conversation, a task, the heartbeat and a native session are one live
    agent's each. With --get, the agent that has it is found and left as it is; else the second is
    refused.
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
        provider=provider or services.settings.provider,
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
        parent=parent,
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


def _make(services: Services, wanted: NewAgent, *, get: bool) -> Made:
    if not get:
        return Made(create_agent(services, wanted), [])
    return Made(find_or_create(services, wanted).paths.id, [])


def _adopt(
    env: Environment, services: Services, wanted: NewAgent, origin: str, *, get: bool
) -> Made:
    path = env.cwd / origin
    there: Path | str = path if path.exists() else origin
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
