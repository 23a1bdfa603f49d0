"""The command line as typer reads it, and one run of it: arguments to exit code."""

from __future__ import annotations

from contextlib import redirect_stdout, suppress
from functools import cache, partial
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from agentsdir.cli.environment import Environment
from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.output import print_error
from agentsdir.formats.errors import AgentsdirError, Interruption, UsageError
from agentsdir.formats.signals import undisturbed
from agentsdir.formats.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

# Each command is a module of its own, imported when it is called; the text is for --help.
GROUPS = {
    "Daily": {
        "new": "Create an agent and print its id",
        "send": "Send an agent a prompt and print its answer",
        "chat": "Talk to an agent at a prompt, or in the line protocol",
        "list": "List the agents",
        "log": "Show a conversation, or what is added to it",
        "last": "Print the last answer",
        "wait": "Wait until turns or messages have ended",
        "open": "Go on with an agent in its own client",
    },
    "Agents": {
        "inspect": "Show everything about one agent",
        "queue": "Put a prompt into an agent's inbox",
        "spawn": "Give a task to a new subagent and print its answer",
        "interrupt": "Ask running turns of an agent, and of those below it, to end",
        "clear-abort": "Take back a request to end an agent's turn",
        "suspend": "Suspend an agent's session",
        "resume": "Make a suspended session active again",
        "set": "Change the model, mode, folder or budget of an agent",
        "permissions": "Show or change what agents may do without a question",
        "rename": "Give an agent another name",
        "tag": "Add tags to an agent, or remove some",
        "fork": "Make a new agent with the history of another one",
        "reset": "Begin an agent's history anew",
        "close": "Close an agent, and those below it, for good",
        "archive": "Move agents to the archive, or bring them back",
        "rm": "Remove agents for good",
    },
    "Transcripts": {
        "parse": "Turn transcripts into blocks, one JSON object a line",
        "follow": "Print a session while its client writes it",
        "replay": "Show a recorded session, or play it back as events",
        "export": "Write an agent's transcripts, or all of it, to a folder or tar",
        "import": "Take an exported agent into this agents directory",
    },
    "Care": {
        "restore": "Bring agents to a sound state after a crash",
        "validate": "Check files against the format",
        "config": "Show, explain and change your settings",
        "trust": "Let agents run in an agents directory found by search",
    },
    "For programs": {
        "outbox": "Show the texts that wait for connectors, or hand them out",
        "snapshot": "Print an agent's session as one JSON document",
        "resolve": "Print the id of the most recent agent of a kind",
        "schema": "Print a JSON Schema of the format",
        "adapters": "List the agent architectures",
    },
}
COMMANDS = {name: text for group in GROUPS.values() for name, text in group.items()}
_HELP = {"help_option_names": ["-h", "--help"]}


class _Commands(TyperGroup):
    """The group of all commands; it imports a command when that is called."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # The names, in the order of `--help`; `get_command` builds the commands.
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build one command."""
        del ctx
        return command_of(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the tables of commands, for which none of them is imported."""
        del ctx
        width = max(map(len, COMMANDS))
        for group, commands in GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


def command_of(name: str) -> Any:
    """Import and build the command of a name of `COMMANDS`."""
    # A signal in the middle of an import can find a library half made, and crash in it.
    with undisturbed():
        module = import_module(f"agentsdir.cli.commands.{name.replace('-', '_')}")
    return _built(name, module)


@cache  # one process may run many command lines
def _built(name: str, module: Any) -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(
        name,
        cls=getattr(module, "Command", None),
        context_settings=getattr(module, "CONTEXT", _HELP),
    )(module.run)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _root_options(
    ctx: typer.Context,
    root: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="The agents directory",
            show_default="$AGENTSDIR_ROOT, or else the nearest .agentsdir here or above, or else"
            " ~/.agentsdir",
        ),
    ] = "",
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version and exit")
    ] = False,
) -> int:
    """Agent sessions on plain files: run them from a shell, read what Claude and Gemini wrote.

    \b
    Examples:
      agentsdir
      id=$(agentsdir new) && agentsdir send $id 'hi'
      agentsdir parse session.jsonl | jq 'select(.type=="tool_use")'

    Without a command, on a terminal, it is `agentsdir chat`.

    Exit codes: 0 done, 1 failed, 2 usage, 3 partial, 10 no such agent, 11 locked, 12 invalid,
    13 wrong state, 14 provider failed, 15 not recorded.
    """
    if version:
        ctx.obj.stdout.write(f"agentsdir {VERSION}\n")
        raise typer.Exit
    if root:
        ctx.obj.root = root
    return _without_command(ctx) if ctx.invoked_subcommand is None else 0


def _without_command(ctx: typer.Context) -> int:
    """Talk at the terminal, or print the help where there is none; return the exit code."""
    env: Environment = ctx.obj
    if env.stdin.isatty() and env.stdout.isatty():
        chat = command_of("chat")
        with chat.make_context("chat", [], parent=ctx) as context:
            return int(chat.invoke(context) or 0)
    env.stdout.write(ctx.get_help() + "\n")
    return Exit.USAGE


@cache
def _group() -> Any:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, cls=_Commands)
    app.callback(invoke_without_command=True, context_settings=_HELP)(_root_options)
    return typer.main.get_command(app)


def invoke(arguments: list[str], env: Environment) -> int:
    """Run the command that a command line names; return its exit code.

    Raises `UsageError` for a wrong command line, and what the command raises.
    """
    group = _group()
    try:
        with group.make_context("agentsdir", list(arguments), obj=env) as context:
            code = group.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except typer.TyperException as error:
        raise _usage_error(error) from error
    return int(code or 0)


class ReadCommand(NamedTuple):
    """A command line that was read, without those options that stand before the command."""

    words: list[str]
    context: Any

    @property
    def command(self) -> Any:
        """The command."""
        return self.context.command

    @property
    def values(self) -> dict[str, Any]:
        """The values of its parameters, by their names in its function."""
        values: dict[str, Any] = self.context.params
        return values

    def invoke(self, env: Environment) -> int:
        """Run it in an environment; return its exit code. Raises what the command raises."""
        self.context.obj = env
        try:
            with self.context:
                code = self.command.invoke(self.context)
        except typer.Exit as done:
            return done.exit_code
        except typer.TyperException as error:
            raise _usage_error(error) from error
        return int(code or 0)


def read_command(words: list[str]) -> ReadCommand | str:
    """Read a command line; return its help if it asks for that.

    Raises `UsageError` for a wrong one.
    """
    above = typer.Context(_group(), info_name="agentsdir")
    with redirect_stdout(StringIO()) as shown:
        try:
            context = command_of(words[0]).make_context(words[0], words[1:], parent=above)
        except typer.Exit:
            return shown.getvalue()
        except typer.TyperException as error:
            raise _usage_error(error) from error
    return ReadCommand(words, context)


def _usage_error(error: typer.TyperException) -> UsageError:
    """Return an error of typer as a `UsageError` with a hint."""
    at = getattr(error, "ctx", None)
    command = at.command_path if at else "agentsdir"
    # typer lists possibilities for an unknown option only.
    option: str = getattr(error, "option_name", "") if hasattr(error, "possibilities") else ""
    if option == "--root":
        hint = "`agentsdir --root DIR` goes before the command"
        return UsageError(f"`{command}` has no --root", hint=hint)
    hint = f"see `{command} --help`"
    if option and not option.strip("-").replace("-", "_").isidentifier():
        hint = "`--` goes before words that begin with a dash"
    return UsageError(error.format_message(), hint=hint)


def run(arguments: list[str], env: Environment) -> int:
    """Run one command line and return its exit code; every error is printed, none is raised."""
    env.arguments = tuple(arguments)
    return _concluded(partial(invoke, arguments, env), env, as_json="--json" in arguments)


def run_read(command: ReadCommand, env: Environment) -> int:
    """Run a command that was read, as `run` does; errors are printed as JSON."""
    env.arguments = tuple(command.words)
    return _concluded(partial(command.invoke, env), env, as_json=True)


def _concluded(act: Callable[[], int], env: Environment, *, as_json: bool) -> int:
    failure: AgentsdirError
    try:
        code = act()
        env.stdout.flush()
    except BrokenPipeError:
        return Exit.CLOSED_PIPE
    except KeyboardInterrupt as stopped:
        if said := _why_interrupted(stopped, as_json=as_json):
            print_error(env, said, as_json=as_json)
        return Exit.INTERRUPTED
    except AgentsdirError as error:
        failure = error
    except MemoryError:
        failure = AgentsdirError("there is not enough memory for this", kind="out-of-memory")
    except ImportError as error:
        failure = AgentsdirError(
            f"a part of the program cannot be loaded: {error}",
            hint="is there memory enough? else install agentsdir anew",
            kind="not-loaded",
        )
    except OSError as error:
        what = error.filename or "standard output"
        failure = AgentsdirError(f"{what}: {error.strerror or error}")
    else:
        return code
    with suppress(OSError):
        env.stdout.flush()
    print_error(env, failure, as_json=as_json)
    return code_of(failure)


def _why_interrupted(stopped: KeyboardInterrupt, *, as_json: bool) -> AgentsdirError | None:
    """Return the message of an interruption; None if the user pressed Ctrl-C, and knows."""
    if stopped.args:  # another command asked for the end
        why = f"the turn was ended by another command ({stopped.args[0]})"
        return Interruption(why, kind="turn-aborted")
    return Interruption("interrupted", kind="interrupted") if as_json else None
