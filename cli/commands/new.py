"""`agentsdir new`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_json
from agentsdir.formats.errors import UsageError


def run(
    ctx: typer.Context,
    provider: Annotated[str, typer.Option(help="Who answers; see `agentsdir adapters`")] = "echo",
    model: Annotated[str, typer.Option(help="The provider's model")] = "",
    system: Annotated[str, typer.Option(help="The system prompt")] = "",
    name: Annotated[str, typer.Option(help="A name to call it by, unique among siblings")] = "",
    profile: Annotated[str, typer.Option(help="The agent profile to record")] = "",
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
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="A setting of the provider"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object")] = False,
) -> None:
    """Create an agent and print its id.

    \b
    Examples:
      id=$(agentsdir new)
      agentsdir new --provider script --option file=talk.jsonl --name demo
      agentsdir new --type cron --cron nightly-report

    Nothing runs until the first `agentsdir send`.
    """
    from agentsdir.engine.creation import NewAgent, create_agent

    env: Environment = ctx.obj
    folder = env.cwd / cwd
    if not folder.is_dir():
        raise UsageError(f"--cwd {folder} is no folder")
    wanted = NewAgent(
        kind=kind,
        provider=provider,
        model=model,
        system_prompt=system,
        profile=profile,
        permission_mode=permission_mode,
        cwd=str(folder.resolve()),
        name=name,
        login=env.login,
        connector=connector,
        user=user,
        channel=channel,
        cron=cron,
        parent=parent,
        options=_options(option or []),
    )
    world = env.world
    agent_id = create_agent(world, wanted)
    if as_json:
        durability = world.disk.durability.value
        print_json(env, {"type": "agent", "agentId": agent_id, "durability": durability})
    else:
        env.stdout.write(agent_id + "\n")


def _options(given: list[str]) -> dict[str, str]:
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise UsageError(f"--option {text!r} is not NAME=VALUE")
        options[name] = value
    return options
