"""`agentsdir send`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.options import check_seconds
from agentsdir.cli.sending import Manner, Sending, send
from agentsdir.cli.targets import TargetOptions

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
        float,
        typer.Option(
            metavar="SECONDS", min=0, callback=check_seconds, help="End the turn after this long"
        ),
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
    no_stdin: options.NoStdin = False,
    sender: options.From = "",
    to: options.To = "",
    sync: Annotated[
        bool, typer.Option("--sync", help="Have the answer sent to the agent it is --from")
    ] = False,
    alone: Annotated[
        bool, typer.Option("--alone", help="Leave the turns of others that follow to them")
    ] = False,
    connector: options.Connector = "",
    user: options.User = "",
    channel: options.Channel = "",
    cron: options.Cron = "",
    heartbeat: options.Heartbeat = False,
    create: options.Create = False,
    ephemeral: options.Ephemeral = False,
    provider: options.Provider = "",
    model: options.Model = "",
    system: options.System = "",
    option: options.Option = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON result")] = False,
) -> None:
    """Give an agent a prompt and print its answer as it comes.

    \b
    Examples:
      agentsdir send $id 'fix the tests'
      git diff | agentsdir send $id 'explain this'
      agentsdir send --cron nightly-report 'write the report'
      agentsdir send --connector telegram --user 42 --channel 42 -- "$text"
      agentsdir send $id --events 'go on' | jq -r 'select(.type=="text_delta").delta'

    What is piped in is added to the prompt, after a blank line; with --connector, --cron or
    --heartbeat, and in a loop that reads a file, it is not.

    When it exits 0, the turn is on disk. In a turn of an agent it is that agent who sends: the
    message's id is printed, and the message is looked at when the turn is over.
    """
    target = TargetOptions(
        words=tuple(words or ()), to=to, sender=sender, connector=connector, user=user,
        channel=channel, cron=cron, heartbeat=heartbeat, create=create, ephemeral=ephemeral,
        provider=provider, model=model, system=system, option=tuple(option or ()),
        promptless=no_message or bool(retry) or messages is not None, file=str(messages or ""),
    )  # fmt: skip
    manner = Manner(events, record, permission_mode, timeout, wait, alone, as_json)
    asked = Sending(
        target, messages, no_wait, no_message, message_id, retry, sync, no_stdin, manner
    )
    send(ctx.obj, asked)
