"""`agentsdir interrupt`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import find_agent
from agentsdir.cli.output import note, print_json
from agentsdir.cli.prompts import check_text, read_prompt
from agentsdir.cli.services import services_of
from agentsdir.engine.cancel import interrupt, wait_for_turns
from agentsdir.engine.hooks import message_to_send
from agentsdir.engine.inbox import Message


def run(
    ctx: typer.Context,
    agent: options.Agent,
    message: Annotated[
        str,
        typer.Argument(metavar="[MESSAGE]", help="Queue this message for the agent's next turn"),
    ] = "",
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Record this reason in the agents' logs")
    ] = "",
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Return at once, before the turns have ended")
    ] = False,
    as_json: options.JsonObject = False,
) -> int:
    """Ask an agent's running turn to end, and those of all agents below it.

    \b
    Examples:
      agentsdir interrupt $id
      agentsdir interrupt $id 'use the other branch' && agentsdir send --no-message $id
      agentsdir interrupt $id --reason 'wrong branch' --no-wait

    It returns when the turns have ended. What they have said until then is kept. If no turn runs,
    MESSAGE is queued all the same; without a MESSAGE it exits 13.
    """
    env: Environment = ctx.obj
    check_text(reason, "reason")
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    content = read_prompt(env, message) if message else None
    services = services_of(env)
    with services.disk.synced_at_end():
        sender = env.turn.agent_id if env.turn else "cli"
        if content is not None:
            content = message_to_send(services, paths, Message(content, sender)).content
        done = interrupt(services, paths, reason, content, sender)
    ours = env.turn  # a command in a turn ends with that turn, so it does not wait for it
    waited = [one for one in done.asked if ours is None or one.turn_id != ours.turn_id]
    died = [] if no_wait else wait_for_turns(services, waited)
    if as_json:
        print_json(
            env,
            {
                "type": "interrupted",
                "agentId": paths.id,
                "turns": [one.as_json() for one in done.asked],
                "messageId": done.message_id,
                "durability": services.disk.durability,
            },
        )
    for one in died:
        note(env, f"the turn's process died; `agentsdir restore {one.paths.id}` ends the turn")
    for below, error in done.refused:
        note(env, f"agent {below.id} was not asked: {error.message}")
    return Exit.FAILED if died or done.refused else Exit.OK
