"""`agentsdir wait`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.naming import find_agent
from agentsdir.cli.options import check_seconds
from agentsdir.cli.output import print_error, print_json
from agentsdir.engine.waiting import Watch, find_message, running, wait_for
from agentsdir.formats import ids
from agentsdir.formats.errors import NoSuchAgent, SessionStateError


def run(
    ctx: typer.Context,
    operands: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[AGENT|MESSAGE]...",
            help="Agents, and ids of messages as `queue` and `send --no-wait` print them",
            show_default="all running turns",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            callback=check_seconds,
            help="End after this time, with exit code 124 if something is not over; 0: no limit",
        ),
    ] = 0,
    as_json: options.JsonLines = False,
) -> int:
    """Wait until turns, or messages, of agents have ended; the exit code says how.

    \b
    Examples:
      agentsdir wait fixer && agentsdir last fixer
      m=$(agentsdir send --no-wait fixer 'mend the tests'); agentsdir wait $m
      agentsdir wait --timeout 600

    Of an AGENT the turn that runs is waited for, what waits in its inbox, and its subagents that
    have not ended, with the turn that takes the answer of each. It exits 0 when all were
    completed, else with the code of the first that was not: 14 for a turn that failed or was
    aborted, 13 for a message that no turn will take. What has ended already counts, too.
    """
    env: Environment = ctx.obj
    code = Exit.OK
    with ExitStack() as logs:
        watches = []
        for watch in _watches(env, operands or []):
            watches.append(watch)
            logs.callback(watch.close)
        for ended in wait_for(watches, time.sleep, timeout=timeout):
            if as_json:
                print_json(env, ended.as_json())
                env.stdout.flush()
            if ended.error is not None:
                print_error(env, ended.error, as_json=as_json)
                code = code or code_of(ended.error)
    return code


def _watches(env: Environment, words: list[str]) -> Iterator[Watch]:
    """Yield what words name, or without any all turns that run but that of this command."""
    if words:
        yield from filter(None, (_named(env, word) for word in words))
        return
    own = env.turn.agent_id if env.turn else None
    yield from running(env.layout, without=own)


def _named(env: Environment, word: str) -> Watch | None:
    """Return a watch of a message, or of an agent; None for one that has nothing to do."""
    try:
        paths = find_agent(env, word)
    except NoSuchAgent as error:
        found = find_message(env.layout, word) if ids.is_agent_id(word) else None
        if found is None:
            raise error from None
        return found
    if env.turn is not None and env.turn.agent_id == paths.id:
        raise SessionStateError(
            f"agent {paths.id} runs the turn that this command is part of", kind="in-turn"
        )
    return Watch.of_agent(paths)
