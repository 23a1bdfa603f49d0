"""One invocation of the command line, in this process: arguments and surroundings to exit code."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.output import print_error
from agentsdir.formats.errors import AgentsdirError, Interruption, UsageError
from agentsdir.formats.version import VERSION

# Each command is a module of its own, imported when it is called; the text is for --help.
COMMANDS = {
    "new": "Create an agent and print its id",
    "send": "Give an agent a prompt and print its answer",
    "queue": "Put a prompt into an agent's inbox",
    "spawn": "Give a task to a new subagent and print its answer",
    "interrupt": "Ask running turns of an agent, and of those below it, to end",
    "clear-abort": "Take back a request to end an agent's turn",
    "close": "Close an agent, and those below it, for good",
    "reset": "Begin an agent's history anew",
    "suspend": "Take an agent's session out of use",
    "resume": "Take a suspended session into use again",
    "rename": "Give an agent another name",
    "tag": "Put tags on an agent, or take some off",
    "resolve": "Print the id of the most recent agent of a kind",
    "outbox": "Show and hand out texts for the people behind connectors",
    "restore": "Bring agents to a sound state after a crash",
    "replay": "Show a recorded session, or play it as events",
    "parse": "Turn transcripts into blocks, one JSON object a line",
    "follow": "Print a session while its client writes it",
    "inspect": "Show everything about one agent",
    "list": "List the agents",
    "fork": "Make an agent that goes on from where another one is",
    "export": "Write an agent's transcripts, or all of it, to a folder or tar",
    "import": "Take an exported agent into this directory",
    "archive": "Put agents away, or bring them back",
    "rm": "Remove agents for good",
    "validate": "Check files against the format",
    "schema": "Print a JSON Schema of the format",
    "adapters": "List the agent architectures",
    "trust": "Let agents run in a directory that was not named",
}
_HELP = {"help_option_names": ["-h", "--help"]}


class _Commands(TyperGroup):
    """The command group; imports only the command that is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the commands in the order of their use."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build one command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"agentsdir.cli.commands.{cmd_name.replace('-', '_')}")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(
            cmd_name,
            short_help=COMMANDS[cmd_name],
            cls=getattr(module, "Command", None),
            context_settings=getattr(module, "CONTEXT", _HELP),
        )(module.run)
        command = typer.main.get_command(app)
        command.name = cmd_name
        return command


def _root_options(
    ctx: typer.Context,
    root: Annotated[
        str, typer.Option(metavar="DIR", help="The agents directory; else $AGENTSDIR_ROOT")
    ] = "",
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit")
    ] = False,
) -> None:
    """Agent sessions on plain files: run them from a shell, read what Claude and Gemini wrote.

    \b
    Examples:
      id=$(agentsdir new) && agentsdir send $id 'hi'
      agentsdir parse session.jsonl | jq 'select(.type=="tool_use")'

    Exit codes: 0 done, 1 failed, 2 usage, 3 partial, 10 no such agent, 11 locked, 12 invalid,
    13 wrong state, 14 provider failed, 15 not recorded.
    """
    if version:
        ctx.obj.stdout.write(f"agentsdir {VERSION}\n")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        raise UsageError("no command is given", hint="see `agentsdir --help`")
    if root:
        ctx.obj.root = root


def run(arguments: list[str], env: Environment) -> int:
    """Run one command line and return its exit code; never raises for what a user can cause."""
    failure: AgentsdirError
    try:
        code = _invoke(arguments, env)
        env.stdout.flush()
    except BrokenPipeError:
        return Exit.CLOSED_PIPE
    except KeyboardInterrupt as stopped:
        if said := _why_interrupted(stopped, as_json="--json" in arguments):
            print_error(env, said, as_json="--json" in arguments)
        return Exit.INTERRUPTED
    except AgentsdirError as error:
        failure = error
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "agentsdir"
        failure = UsageError(error.format_message(), hint=f"see `{command} --help`")
    except MemoryError:
        failure = AgentsdirError("there is not enough memory for this", kind="out-of-memory")
    except OSError as error:
        what = error.filename or "standard output"
        failure = AgentsdirError(f"{what}: {error.strerror or error}")
    else:
        return code
    with suppress(OSError):
        env.stdout.flush()
    print_error(env, failure, as_json="--json" in arguments)
    return code_of(failure)


def _why_interrupted(stopped: KeyboardInterrupt, *, as_json: bool) -> AgentsdirError | None:
    """Return what is said of an interruption; a person who pressed Ctrl-C knows."""
    if stopped.args:  # another command asked for it
        why = f"the turn was ended by another command ({stopped.args[0]})"
        return Interruption(why, kind="turn-aborted")
    return Interruption("interrupted", kind="interrupted") if as_json else None


def _invoke(arguments: list[str], env: Environment) -> int:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, cls=_Commands)
    app.callback(invoke_without_command=True, context_settings=_HELP)(_root_options)
    group = typer.main.get_command(app)
    try:
        with group.make_context("agentsdir", list(arguments) or ["--help"], obj=env) as context:
            code = group.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return int(code or 0)
