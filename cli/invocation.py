"""One invocation of the command line, in this process: arguments and surroundings to exit code."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agentsdir.cli.command_line import invoke
from agentsdir.cli.exits import Exit, code_of
from agentsdir.cli.output import print_error
from agentsdir.formats.errors import AgentsdirError, Interruption

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment


def run(arguments: list[str], env: Environment) -> int:
    """Run one command line and return its exit code; never raises for what a user can cause."""
    failure: AgentsdirError
    as_json = "--json" in arguments
    env.arguments = tuple(arguments)
    try:
        code = invoke(arguments, env)
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
    """Return what is said of an interruption; a person who pressed Ctrl-C knows."""
    if stopped.args:  # another command asked for it
        why = f"the turn was ended by another command ({stopped.args[0]})"
        return Interruption(why, kind="turn-aborted")
    return Interruption("interrupted", kind="interrupted") if as_json else None
