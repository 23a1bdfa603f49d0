"""`agentsdir queue`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import find_agent
from agentsdir.cli.prompts import read_messages, read_prompt
from agentsdir.cli.services import services_of
from agentsdir.cli.turn_printer import print_message
from agentsdir.engine.in_turn import queue, queue_from_turn
from agentsdir.engine.inbox import Message, drop_message
from agentsdir.formats.errors import SessionStateError, UsageError


def run(
    ctx: typer.Context,
    agent: options.Agent,
    prompt: Annotated[str, typer.Argument(metavar="[PROMPT]", help="The prompt; - is stdin")] = "-",
    messages: options.Messages = None,
    message_id: options.MessageId = "",
    no_stdin: options.NoStdin = False,
    drop: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="Take this message out of the inbox; its turn must not have begun",
        ),
    ] = "",
    as_json: options.JsonObject = False,
) -> None:
    """Put a prompt into an agent's inbox, even while its turn runs, and print the message's id.

    \b
    Examples:
      agentsdir queue $id 'and then the docs'
      agentsdir queue $id 'later' && agentsdir send $id --no-message
      agentsdir queue $id --drop $message

    What is piped in is added to the prompt, after a blank line.

    The next `send` runs the messages that wait, and then its own. If it is given --no-message, it
    runs only those that wait.
    """
    env: Environment = ctx.obj
    if messages is not None and prompt != "-":
        raise UsageError("give a prompt or --messages, not both")
    if drop and (messages is not None or message_id or prompt != "-"):
        raise UsageError("--drop takes a message out, so nothing that makes one goes with it")
    if drop and env.turn is not None:
        raise SessionStateError("a turn cannot take a message out of an inbox", kind="in-turn")
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    if drop:
        services = services_of(env)
        with services.disk.synced_at_end():
            drop_message(services, paths, drop)
        print_message(env, services, paths, drop, as_json=as_json)
        return
    if messages is not None:
        content = read_messages(env, messages)
    else:
        content = read_prompt(env, prompt, no_stdin=no_stdin, add_stdin=True)
    services = services_of(env)
    with services.disk.synced_at_end():
        message = Message(content, id=message_id)
        if env.turn is None:
            there = queue(services, paths, message)
        else:
            sender = services.layout.agent(env.turn.agent_id)
            message = message._replace(sender=sender.id)
            there = queue_from_turn(services, sender, env.turn.turn_id, paths, message)
    print_message(env, services, paths, there, as_json=as_json)
