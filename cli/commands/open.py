"""`agentsdir open`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import termios
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer

from agentsdir.adapters.processes import not_started
from agentsdir.cli.exits import Exit
from agentsdir.cli.naming import LAST, find_agent
from agentsdir.cli.options import WaitForTurn
from agentsdir.cli.output import note
from agentsdir.cli.services import services_of
from agentsdir.engine.at_terminal import check_opens, open_client
from agentsdir.formats.errors import ProviderError, SessionStateError, Terminated, UsageError
from agentsdir.formats.store.agent import read_agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.adapters.protocol import SessionSpec, TerminalProgram
    from agentsdir.cli.environment import Environment

_LONGEST = 500
"""Characters of the client's command that are shown: it may have a system prompt in it."""
_PATIENCE = 10.0
"""Seconds that a client has to end when this process is ended."""


def run(
    ctx: typer.Context,
    agent: Annotated[
        str,
        typer.Argument(
            metavar="[AGENT]",
            help="An id, a session id, a name, or the first 4 characters (or more) of one of them",
            show_default="@last",
        ),
    ] = LAST,
    wait: WaitForTurn = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print errors as JSON")] = False,
) -> int:
    """Go on with an agent's session in its own client, full-screen, in the agent's folder.

    \b
    Examples:
      agentsdir open fixer
      agentsdir open && agentsdir log -n 3

    No turn of the agent runs meanwhile. When you leave the client, what was said there is in the
    agent's log. It needs a terminal, and a provider that runs a client: claude or gemini.
    """
    del as_json
    env: Environment = ctx.obj
    if env.turn is not None:
        raise SessionStateError(
            "within a turn there is no person to open a client for", kind="in-turn"
        )
    paths = find_agent(env, agent)
    env.layout.check_version(writing=True)
    check_opens(paths)
    if not (env.stdin.isatty() and env.stdout.isatty()):
        raise UsageError(
            "a client is opened at a terminal, and this is none",
            hint=f"`agentsdir send {paths.id}` sends a prompt",
            kind="no-terminal",
        )
    services = services_of(env)
    env.count_waits(wait)

    def at_terminal(program: TerminalProgram, spec: SessionSpec) -> int:
        words = [os.path.basename(program.command[0]), *program.command[1:]]  # noqa: PTH119
        shown = shlex.join(words)
        shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
        note(env, f"{shown} in {spec.cwd}")
        return _run(env, program, spec.cwd)

    opened = open_client(services, paths, at_terminal, wait=wait)
    if opened.prompts:
        prompts = "1 prompt" if opened.prompts == 1 else f"{opened.prompts} prompts"
        name = read_agent(paths).state.name or paths.id
        note(env, f"{prompts} from the client in the log of agent {name}")
    if opened.code:
        how = (
            f"was ended by signal {-opened.code}"
            if opened.code < 0
            else f"ended with {opened.code}"
        )
        raise ProviderError(f"the client {how}", kind="client-failed")
    return Exit.OK


def _run(env: Environment, program: TerminalProgram, cwd: str) -> int:
    """Run a program at the terminal, as a part of this job, and return its exit code."""
    with _kept_terminal(env.stdin.fileno()):
        try:
            process = subprocess.Popen(program.command, cwd=cwd, env=program.environment)
        except (OSError, ValueError) as error:
            raise not_started(program.command[0], error) from error
        # After the start, since a program inherits that a signal is ignored.
        before = {
            number: signal.signal(number, signal.SIG_IGN)
            for number in (signal.SIGINT, signal.SIGQUIT)
        }
        try:
            return _wait(process)
        except Terminated:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
            raise
        finally:
            process.kill()
            process.wait()
            for number, handler in before.items():
                signal.signal(number, handler)


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for a program to end; where it stops itself, stop too, so that the shell goes on."""
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode
        os.kill(os.getpid(), signal.SIGTSTP)
        process.send_signal(signal.SIGCONT)


@contextmanager
def _kept_terminal(descriptor: int) -> Iterator[None]:
    """Put a terminal back as it was: a client that was killed leaves it without an echo."""
    before = termios.tcgetattr(descriptor)
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
