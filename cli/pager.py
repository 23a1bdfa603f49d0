"""The user's pager for long text on a terminal (docs/commands.md, "On a terminal")."""

from __future__ import annotations

import shlex
import signal
import subprocess
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING

from agentsdir.cli.output import note
from agentsdir.formats.errors import Terminated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.cli.environment import Environment

# F: ends at once where all fits on the screen; R: shows our colours; X: leaves the text there.
_LESS = {"LESS": "FRX", "LV": "-c"}


def pager_of(env: Environment) -> list[str]:
    """Return the pager's program and arguments; none where no pager is wanted.

    It is `$AGENTSDIR_PAGER`, else `$PAGER`, split into words as a shell would, without a shell;
    else `less`. Empty, or `cat`, is no pager. The program is given by its absolute path.
    """
    from agentsdir.adapters.processes import find_program  # for a terminal alone

    for name in ("AGENTSDIR_PAGER", "PAGER"):
        if name in env.variables:
            try:
                words = shlex.split(env.variables[name])
            except ValueError:  # a quote without its end
                note(env, f"${name} is no command line; there is no pager")
                return []
            if words in ([], ["cat"]):
                return []
            if program := find_program(words[0], env.variables):
                return [program, *words[1:]]
            note(env, f"the pager {words[0]!r} does not start: there is no such program")
            return []
    if env.variables.get("TERM", "dumb") in ("", "dumb"):
        return []
    less = find_program("less", env.variables)
    return [less] if less else []


@contextmanager
def paged(env: Environment, *, wanted: bool = True) -> Iterator[None]:
    """Show what the block writes to `env.stdout` in the pager, if that is a terminal.

    `env.stdout` is the pager's input within the block, and so no terminal: what depends on that is
    asked before. A reader that leaves the pager ends the block, without an error. While the pager
    runs, Ctrl-C is the pager's.

    Args:
        wanted: False for `--no-pager`.
    """
    process = _start(env) if wanted and env.stdout.isatty() else None
    if process is None:
        yield
        return
    pipe = process.stdin
    assert isinstance(pipe, TextIOWrapper)
    terminal, env.stdout = env.stdout, pipe
    # After the start, since a program inherits that a signal is ignored.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with suppress(BrokenPipeError):
            yield
    except Terminated:
        process.terminate()
        raise
    finally:
        env.stdout = terminal
        with suppress(BrokenPipeError):
            pipe.close()
        process.wait()
        signal.signal(signal.SIGINT, before)


def _start(env: Environment) -> subprocess.Popen[str] | None:
    words = pager_of(env)
    if not words:
        return None
    try:
        terminal = env.stdout.fileno()
    except OSError:  # it has no descriptor that a program could be given
        return None
    env.stdout.flush()
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=terminal,
            env={**_LESS, **env.variables},
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
        )
    except OSError as error:
        note(env, f"the pager {words[0]!r} does not start: {error.strerror}")
        return None
