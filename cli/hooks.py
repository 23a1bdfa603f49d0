"""Running a user's hook: an executable of theirs, one JSON document in, one out (decision D34).

Hooks stand in the user's configuration and never in a root (decision D33).
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from agentsdir.adapters.processes import dying_with_parent
from agentsdir.cli.config import config_home, foreign
from agentsdir.cli.environment import HOOK_OF
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment

_SHOWN = 2000
_READ = 16 * 1024 * 1024


def find_hook(env: Environment, name: str, agents: tuple[str, ...]) -> Path | None:
    """Return the hook of that name: the first of one agent's own, else everybody's.

    Args:
        agents: what the agent is called, its name before its id.

    Raises `HookFailed` for a file in its place that is not this user's own executable: a hook that
    was meant to be asked must not be passed over.
    """
    folder = config_home(env) / "hooks"
    own = [folder / "agents" / agent / name for agent in agents if _is_one_part(agent)]
    for path in (*own, folder / name):
        with suppress(FileNotFoundError, NotADirectoryError):
            _check(env, path, name)
            return path
    return None


def _is_one_part(agent: str) -> bool:
    # A name comes from the log, and may be anything.
    fits = len(agent.encode(errors="replace")) < 256
    return fits and agent not in ("", ".", "..") and "/" not in agent and "\0" not in agent


def _check(env: Environment, path: Path, name: str) -> None:
    try:
        flaw = foreign(path.stat(), env.uid)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise HookFailed(f"{path} is a link that leads nowhere", hook=name) from None
        raise
    except OSError as error:
        raise HookFailed(f"{path} cannot be looked at: {error.strerror}", hook=name) from error
    if not flaw and not os.access(path, os.X_OK):
        flaw = "is not executable"
    if flaw:
        raise HookFailed(f"{path} {flaw}", hook=name)


class HookAnswer:
    """What a hook said: its exit status, standard output, and standard error made short."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out = out
        self.reason = err.decode(errors="replace").strip()[:_SHOWN]


def run_hook(
    env: Environment, path: Path, document: dict[str, Any], *, timeout: float | None = None
) -> HookAnswer:
    """Give a hook one JSON object on standard input, and wait for it; nothing of it lives on.

    Args:
        timeout: seconds that it may take; None for as long as it likes.

    Raises `HookFailed` when it cannot run, takes too long, or a signal ended it.
    """
    # Files, not pipes: what a hook leaves running behind it would keep a pipe open.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out:
        given.write(jsontext.encode_as_is(document) + b"\n")
        given.seek(0)
        with tempfile.TemporaryFile() as err:
            try:
                hook = subprocess.Popen(
                    [path],
                    stdin=given,
                    stdout=out,
                    stderr=err,
                    env={**env.variables, HOOK_OF: _waiting(env, document)},
                    start_new_session=True,
                    preexec_fn=dying_with_parent(),
                )
            except OSError as error:
                raise HookFailed(f"{path} cannot run: {error.strerror}", hook=path.name) from error
            try:
                status = hook.wait(timeout)
            except subprocess.TimeoutExpired:
                late = f"{path} took longer than {timeout:g} seconds"
                raise HookFailed(late, hook=path.name) from None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(hook.pid, signal.SIGKILL)
                hook.wait()
            answer = HookAnswer(status, _beginning(out), _beginning(err))
    if status < 0:
        raise HookFailed(f"{path} was ended by signal {-status}", hook=path.name)
    return answer


def _waiting(env: Environment, document: dict[str, Any]) -> str:
    return " ".join((*env.hook_of, str(document["agent_id"])))


def _beginning(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    return stream.read(_READ)
