"""`agentsdir chat`."""

from __future__ import annotations

from typing import Annotated

import typer

from agentsdir.cli.environment import Environment
from agentsdir.cli.protocol import Protocol
from agentsdir.formats.errors import UsageError


def run(
    ctx: typer.Context,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl", help="Read requests as JSON Lines on stdin, print JSON Lines on stdout"
        ),
    ] = False,
) -> int:
    """Do the requests of a program, many at once, in one process.

    \b
    Examples:
      agentsdir chat --jsonl < requests.jsonl
      echo '{"id":1,"verb":"send","args":["fixer","hi"]}' | agentsdir chat --jsonl | jq .value

    A request has an id, a verb (a command's name), args, and options by their long names. Each
    object of the answer has the request's id; the last one has the exit code as `exit`.
    docs/protocol.md has all of it.
    """
    env: Environment = ctx.obj
    if not jsonl:
        raise UsageError("chat needs --jsonl")
    try:
        protocol = Protocol(env)
    except OSError as error:  # a stream in memory
        raise UsageError("--jsonl needs standard input and output of the system") from error
    return protocol.run()
