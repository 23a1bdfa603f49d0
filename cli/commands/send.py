"""`agentsdir send`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentsdir.cli import targets
from agentsdir.cli.environment import Environment
from agentsdir.formats.errors import UsageError

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[AGENT] [PROMPT]", help="To whom, and what; - or nothing reads stdin"),
]


def run(
    ctx: typer.Context,
    words: Words = None,
    messages: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A JSON prompt: a string, or text and image parts"),
    ] = None,
    events: Annotated[bool, typer.Option("--events", help="Print stream events instead")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the stream events, for replay --events")
    ] = False,
    permission_mode: Annotated[
        str, typer.Option(metavar="MODE", help="The client's permission mode, for this turn")
    ] = "",
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="End the turn after this long")
    ] = 0,
    wait: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Wait this long for a turn and a slot; -1: ever"),
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Print the message's id; it is run in the background")
    ] = False,
    no_message: Annotated[
        bool, typer.Option("--no-message", help="Run what waits; if nothing does, go on without")
    ] = False,
    message_id: Annotated[
        str, typer.Option(metavar="ID", help="The message's id: said again, it is not sent again")
    ] = "",
    retry: Annotated[
        str,
        typer.Option(
            metavar="MESSAGE", help="Say again what failed or was aborted; `last`: the last"
        ),
    ] = "",
    sender: targets.From = "",
    to: targets.To = "",
    sync: Annotated[
        bool, typer.Option("--sync", help="Have the answer sent to the agent it is --from")
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave the turns of others that follow to them")
    ] = False,
    connector: targets.Connector = "",
    user: targets.User = "",
    channel: targets.Channel = "",
    cron: targets.Cron = "",
    heartbeat: targets.Heartbeat = False,
    create: targets.Create = False,
    ephemeral: targets.Ephemeral = False,
    provider: targets.Provider = "",
    model: targets.Model = "",
    system: targets.System = "",
    option: targets.Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON result")] = False,
) -> None:
    """Give an agent a prompt and print its answer as it comes.

    \b
    Examples:
      agentsdir send $id 'fix the tests'
      git diff | agentsdir send $id
      agentsdir send --cron nightly-report 'write the report'
      agentsdir send --connector telegram --user 42 --channel 42 'hello'
      agentsdir send $id --events 'go on' | jq -r 'select(.type=="text_delta").delta'

    When it exits 0, the turn is on disk. In a turn of an agent it is that agent who sends: the
    message's id is printed, and the message is looked at when the turn is over.
    """
    from agentsdir.cli import sending
    from agentsdir.engine.agents import find_agent
    from agentsdir.engine.inbox import Message, retry_of

    env: Environment = ctx.obj
    chosen = targets.TargetOptions(
        words=tuple(words or ()), to=to, sender=sender, connector=connector, user=user,
        channel=channel, cron=cron, heartbeat=heartbeat, create=create, ephemeral=ephemeral,
        provider=provider, model=model, system=system, option=tuple(option or ()),
        promptless=no_message or bool(retry) or messages is not None,
    )  # fmt: skip
    manner = sending.Manner(events, record, permission_mode, timeout, wait, alone, as_json)
    if no_message and env.turn is not None:
        raise UsageError("--no-message runs turns, and within a turn none is: it would wait for it")
    prompt = chosen.agent_and_prompt(env)[1]
    if (messages is not None or no_message or retry) and prompt != "-":
        raise UsageError("give one of: a prompt, --messages, --retry, --no-message")
    if no_message and (sync or no_wait or messages is not None or retry):
        raise UsageError("--no-message sends none; nothing else goes with it")
    if no_wait or env.turn is not None:
        sending.check_unwatched(manner)
    # What can be refused is refused before an agent is made.
    content = None if no_message or retry else _content(env, prompt, messages)
    if sync and not (sender or retry or env.turn):
        raise UsageError("--sync needs --from: who is to get the answer?")
    from_agent = find_agent(env.layout, sender).id if sender else ""
    if env.turn is not None and from_agent not in ("", env.turn.agent_id):
        raise UsageError(f"in a turn of agent {env.turn.agent_id} it is that agent who sends")
    world = env.world
    paths = targets.find_target(env, world, chosen)
    world.layout.check_version(writing=True)
    if no_message:
        sending.run_waiting(env, world, paths, message_id, manner)
        return
    said = retry_of(paths, retry) if content is None else Message(content)
    said = manner.told_with(said._replace(sync=sync or said.sync, id=message_id))
    if from_agent:
        said = said._replace(sender=from_agent)
    if sync and said.sender == "cli" and env.turn is None:
        raise UsageError("--sync needs --from: who is to get the answer?")
    if env.turn is not None or no_wait:
        send = sending.send_in_turn if env.turn is not None else sending.send_away
        there = send(env, world, paths, said)
        sending.print_message(env, world, paths, there, as_json=as_json)
    else:
        sending.send_and_wait(env, world, paths, said, manner)


def _content(env: Environment, prompt: str, messages: Path | None) -> list[dict[str, Any]]:
    from agentsdir.cli.prompts import read_messages, read_prompt

    return read_messages(env, messages) if messages else read_prompt(env, prompt)
