"""`agentsdir follow`."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.conversation import Pages, SessionPrinter
from agentsdir.cli.environment import Environment
from agentsdir.cli.naming import agent_reference
from agentsdir.cli.options import check_seconds
from agentsdir.cli.output import note, wants_json
from agentsdir.cli.trust import check_trust
from agentsdir.engine.follow import find_target, follow, live_translator, translate
from agentsdir.engine.parse import stores_of
from agentsdir.formats.errors import UsageError


def run(
    ctx: typer.Context,
    session: Annotated[
        str,
        typer.Argument(
            metavar="FILE|ID|-",
            help="A transcript, the id of a client's session, an agent, or - for stdin",
        ),
    ],
    events: Annotated[
        bool, typer.Option("--events", help="Print stream events as JSON Lines, not blocks")
    ] = False,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Print the client's bookkeeping rows, too")
    ] = False,
    until_idle: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=check_seconds,
            help="End when nothing was written for this time; -1: do not end",
        ),
    ] = -1,
    color: options.Color = "auto",
    as_json: options.TerminalJsonLines = False,
) -> int:
    """Print a session while its client writes it: text on a terminal, blocks in a pipe.

    \b
    Examples:
      agentsdir follow 5f0c1a7b
      agentsdir follow session.jsonl --until-idle 30 | jq -r 'select(.type=="tool_use").toolName'
      claude -p 'hi' --output-format stream-json --verbose | agentsdir follow -
      gemini -p 'hi' --output-format stream-json | agentsdir follow -

    It starts with what the session has already; FILE may not exist yet. A block that changes later,
    such as a call that gets its result, is printed again: the last line with an id is the valid
    one. On stdin it takes a client's stream output, or stream events.
    """
    env: Environment = ctx.obj
    pages = None if wants_json(env, as_json) else Pages.of(env, color)
    if session == "-":
        if hidden or until_idle >= 0:
            raise UsageError("--hidden and --until-idle are about files, and - is none")
        translator = live_translator(keep=not events)
        printer = SessionPrinter(env, translator, events=events, pages=pages)
        return printer.run(translate(translator, env.stdin))
    followed = find_target(
        session if (env.cwd / session).exists() else agent_reference(env, session),
        layout=env.layout,
        stores=partial(stores_of, env.home, env.cwd, env.variables),
        cwd=env.cwd,
        home=env.home,
        variables=env.variables,
        check_trust=partial(check_trust, env),
    )
    if not followed.place.exists():
        note(env, f"{session} is not there yet; waiting for {followed.place}")
    follower = followed.follower(hidden=hidden)
    printer = SessionPrinter(env, follower, events=events, pages=pages)
    until = until_idle if until_idle >= 0 else None
    return printer.run(follow(follower, time.sleep, until_idle=until))
