"""`agentsdir chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.cli import options
from agentsdir.cli.naming import find_agent
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment

Command = options.GroupedCommand


def run(
    ctx: typer.Context,
    agent: Annotated[
        str,
        typer.Argument(
            metavar="[AGENT]",
            help="The agent to talk to, as for `send`",
            show_default="@last, or else a new one with the first prompt",
        ),
    ] = "",
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl", help="Read requests as JSON Lines on stdin, print JSON Lines on stdout"
        ),
    ] = False,
) -> int:
    """Talk to an agent at a prompt: answers as they come, commands after a slash.

    \b
    Examples:
      agentsdir chat
      agentsdir chat fixer
      echo 'go on' | agentsdir chat fixer
      agentsdir chat --jsonl < requests.jsonl
      echo '{"id":1,"verb":"send","args":["fixer","hi"]}' | agentsdir chat --jsonl | jq .value

    `agentsdir` alone on a terminal does the same. Without a terminal, standard input is one prompt
    for AGENT.

    --jsonl is for programs: it does the requests that it reads, many at once, in one process. A
    request has an id, a verb (a command's name), args, and options by their long names. Each object
    of the answer has the request's id; the last one has the exit code as `exit`. docs/protocol.md
    has all of it.
    """
    env: Environment = ctx.obj
    if jsonl:
        from agentsdir.cli.protocol import Protocol

        if agent:
            raise UsageError("--jsonl takes no AGENT", hint="each request names its own")
        try:
            protocol = Protocol(env)
        except OSError as error:  # a stream in memory
            raise UsageError("--jsonl needs standard input and output of the system") from error
        return protocol.run()
    if not (env.stdin.isatty() and env.stdout.isatty()):
        return _send_input(env, agent)
    if env.variables.get("TERM", "dumb") in ("", "dumb"):
        raise UsageError(
            "this terminal moves no cursor (TERM is dumb or not set), so there is no prompt on it",
            hint="`agentsdir send -c PROMPT` goes on with the last agent",
        )
    env.layout.check_version(writing=False)
    paths = find_agent(env, agent) if agent else None
    from agentsdir.cli.chat import talk  # prompt-toolkit takes longer to load than a whole command

    return talk(env, paths.id if paths else "")


def _send_input(env: Environment, agent: str) -> int:
    """Send what standard input has as one prompt."""
    if not agent:
        raise UsageError(
            "there is no terminal to talk at",
            hint="`agentsdir chat AGENT` sends standard input to an agent",
        )
    if env.stdin.isatty():
        raise UsageError("standard output is no terminal to talk at", hint="use `agentsdir send`")
    from agentsdir.cli.command_line import invoke

    return invoke(["send", agent, "-"], env)
