"""One invocation of the command line, in this process: arguments and surroundings to exit code."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agentsdir.formats.errors import AgentsdirError, Interruption

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment


def prepare(arguments: list[str]) -> None:
    """Import what the command line takes, which no signal may break off.

    A library in C that was begun to be imported can crash the interpreter, and the importing
    machinery can swallow what a handler raises.
    """
    match _plain(arguments):
        case "send":
            from agentsdir.cli import answers, prompts, sending, targets  # noqa: F401
            from agentsdir.engine import turns  # noqa: F401
        case "parse":
            import agentsdir.cli.parsing  # orjson comes with it
            import agentsdir.engine.parsing  # noqa: F401
        case _:
            from agentsdir.cli import command_line, exits, output  # noqa: F401


def run(arguments: list[str], env: Environment) -> int:
    """Run one command line and return its exit code; never raises for what a user can cause."""
    failure: AgentsdirError
    env.arguments = tuple(arguments)
    try:
        code = _invoke(arguments, env)
        env.stdout.flush()
    except BrokenPipeError:
        from agentsdir.cli.exits import Exit

        return Exit.CLOSED_PIPE
    except KeyboardInterrupt as stopped:
        from agentsdir.cli.exits import Exit

        if said := _why_interrupted(stopped, as_json="--json" in arguments):
            _say(env, said, arguments)
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
    _say(env, failure, arguments)
    from agentsdir.cli.exits import code_of

    return code_of(failure)


def _say(env: Environment, failure: AgentsdirError, arguments: list[str]) -> None:
    from agentsdir.cli.output import print_error

    print_error(env, failure, as_json="--json" in arguments)


def _why_interrupted(stopped: KeyboardInterrupt, *, as_json: bool) -> AgentsdirError | None:
    """Return what is said of an interruption; a person who pressed Ctrl-C knows."""
    if stopped.args:  # another command asked for it
        why = f"the turn was ended by another command ({stopped.args[0]})"
        return Interruption(why, kind="turn-aborted")
    return Interruption("interrupted", kind="interrupted") if as_json else None


def _invoke(arguments: list[str], env: Environment) -> int:
    words = arguments[1:]
    match _plain(arguments):
        case "send":
            from agentsdir.cli.sending import Sending, send
            from agentsdir.cli.targets import TargetOptions

            send(env, Sending(TargetOptions(tuple(words))))
            return 0
        case "parse":
            from agentsdir.cli.parsing import Manner, parse

            return parse(env, words, Manner())
        case _:
            from agentsdir.cli.command_line import invoke

            return invoke(arguments, env)


def _plain(arguments: list[str]) -> str | None:
    """Return the command of a `send` or `parse` without options, which scripts call most.

    Loading the library that reads options would take longer than all else that they do (D37).
    """
    command, *words = arguments or [""]
    plain = all(word == "-" or not word.startswith("-") for word in words)
    return command if command in ("send", "parse") and words and plain else None
