"""`agentsdir send`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import note, print_document
from agentsdir.formats.errors import UsageError


def run(
    ctx: typer.Context,
    agent: Annotated[str, typer.Argument(help="Id, session id, name, or a unique prefix")],
    prompt: Annotated[str, typer.Argument(help="The prompt; - or nothing reads stdin")] = "-",
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
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="Wait this long for another turn; -1: ever")
    ] = -1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON result")] = False,
) -> None:
    """Give an agent a prompt and print its answer as it comes.

    \b
    Examples:
      agentsdir send $id 'fix the tests'
      git diff | agentsdir send $id
      agentsdir send $id --events 'go on' | jq -r 'select(.type=="text_delta").delta'

    When it exits 0, the turn is on disk.
    """
    from agentsdir.cli.answers import AnswerPrinter
    from agentsdir.cli.prompts import read_messages, read_prompt
    from agentsdir.engine.agents import find_agent
    from agentsdir.engine.turns import send

    env: Environment = ctx.obj
    if messages is not None and prompt != "-":
        raise UsageError("give a prompt or --messages, not both")
    paths = find_agent(env.layout, agent)
    env.layout.check_version(writing=True)
    content = read_messages(env, messages) if messages else read_prompt(env, prompt)
    answer = AnswerPrinter(env, events=events, silent=as_json)
    world = env.world
    try:
        result = send(
            world,
            paths,
            content,
            answer.take,
            wait=wait,
            record=record,
            permission_mode=permission_mode,
        )
    except BaseException:
        answer.break_off()
        raise
    if as_json:
        print_document(env, {**result.as_json(), "durability": world.disk.durability.value})
    else:
        answer.finish(result.response)
    if record and not result.recorded:
        note(env, "another process ran the turn, and kept no stream of it")
