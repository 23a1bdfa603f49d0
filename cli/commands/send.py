"""`agentsdir send`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.options import MESSAGE, OUTPUT, TURN, WAITING, GroupedCommand
from agentsdir.cli.sending import Manner, Sending, send
from agentsdir.cli.targets import TargetOptions

Command = GroupedCommand


def run(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT] [PROMPT]",
            help="The agent (an id, a session id, a name, or the first 4 characters or more of an"
            " id), and the prompt; - or no prompt reads it from stdin",
        ),
    ] = None,
    to: options.To = "",
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
    messages: options.Messages = None,
    no_stdin: options.NoStdin = False,
    message_id: options.MessageId = "",
    retry: Annotated[
        str,
        typer.Option(
            metavar="ID",
            rich_help_panel=MESSAGE,
            help="Send the text of a message that failed or was aborted again; `last`: of the last"
            " message",
        ),
    ] = "",
    no_message: Annotated[
        bool,
        typer.Option(
            "--no-message",
            rich_help_panel=MESSAGE,
            help="Send no message: run those that wait, or, if there are none, a turn without one",
        ),
    ] = False,
    sender: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="AGENT",
            rich_help_panel=MESSAGE,
            help="Send in the name of this agent; without a target, to its parent, or else to the"
            " most recent foreground agent",
            show_default="in a turn, the turn's agent",
        ),
    ] = "",
    sync: Annotated[
        bool,
        typer.Option(
            "--sync",
            rich_help_panel=MESSAGE,
            help="Put the answer into the inbox of the agent that --from names",
        ),
    ] = False,
    permission_mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            rich_help_panel=TURN,
            help="The client's permission mode for this turn",
            show_default="the agent's",
        ),
    ] = "",
    timeout: options.Timeout = 0,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            rich_help_panel=TURN,
            help="Store the stream events of the turn, for `replay --events`",
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=WAITING,
            help="How long to wait for other turns of the agent and for a slot; -1: no limit",
            show_default="no limit",
        ),
    ] = None,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            rich_help_panel=WAITING,
            help="Print the message's id at once, and let another process run the turn",
        ),
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            rich_help_panel=WAITING,
            help="Do not run the turns of other agents that get this answer; it waits in their"
            " inboxes",
        ),
    ] = False,
    events: options.Events = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            rich_help_panel=OUTPUT,
            help="Print the turn's result as a JSON object, and errors as JSON, too",
        ),
    ] = False,
) -> None:
    """Give an agent a prompt and print its answer as it comes.

    \b
    Examples:
      agentsdir send $id 'fix the tests'
      git diff | agentsdir send $id 'explain this'
      agentsdir send --cron nightly-report 'write the report'
      agentsdir send --connector telegram --user 42 --channel 42 -- "$text"
      agentsdir send $id --events 'go on' | jq -r 'select(.type=="text_delta").delta'

    What is piped in is added to the prompt, after a blank line. It is not added with --connector,
    --cron or --heartbeat, and not in a loop that reads a file.

    When it exits 0, the turn is on disk. Within a turn of an agent, it sends in the name of that
    agent: it prints the message's id, and the message is run when the turn is over.
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
