"""Running the user's hooks (decision D34): `outgoing` and `tool-confirmation`.

A hook is an executable that reads one JSON document and may print one. Hooks are in the user's
configuration and never in a root (decision D33).
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from agentsdir.adapters.processes import dying_with_parent, wait_for_end
from agentsdir.cli.config import ownership_flaw
from agentsdir.cli.environment import HOOK_OF
from agentsdir.engine.outbox import OUTGOING
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment


_MAX_REASON = 2000
"""Characters of a hook's standard error that are shown."""
_MAX_OUTPUT = 16 * 1024 * 1024
"""Bytes of a hook's output that are read."""


def find_hook(env: Environment, name: str, agents: tuple[str, ...]) -> Path | None:
    """Return the hook of a name: the first that is for one of `agents`, else that for all agents.

    Args:
        agents: the agent's name and id, in this order.

    Raises `HookFailed` for a file in that place which is not an executable of this user: a hook
    must not be skipped because its file is wrong.
    """
    folder = env.config_folder / "hooks"
    own = [folder / "agents" / agent / name for agent in agents if _is_file_name(agent)]
    for path in (*own, folder / name):
        with suppress(FileNotFoundError, NotADirectoryError):
            _check(env, path, name)
            return path
    return None


def _is_file_name(agent: str) -> bool:
    # The name comes from the log, and may be a path.
    fits = len(agent.encode(errors="replace")) < 256
    return fits and agent not in ("", ".", "..") and "/" not in agent and "\0" not in agent


def _check(env: Environment, path: Path, name: str) -> None:
    try:
        flaw = ownership_flaw(path.stat(), env.uid)
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise HookFailed(f"{path} is a link to a file that does not exist", hook=name) from None
        raise
    except OSError as error:
        raise HookFailed(f"{path} cannot be examined: {error.strerror}", hook=name) from error
    if not flaw and not os.access(path, os.X_OK):
        flaw = "is not executable"
    if flaw:
        raise HookFailed(f"{path} {flaw}", hook=name)


class HookResult:
    """How a hook ended: its exit status, its output, and its standard error as `reason`."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out = out
        self.reason = err.decode(errors="replace").strip()[:_MAX_REASON]


def run_hook(
    env: Environment, path: Path, document: dict[str, Any], *, timeout: float | None = None
) -> HookResult:
    """Run a hook with one JSON object on standard input, and wait until it ends.

    Processes that it started are killed.

    Args:
        timeout: seconds that it may take; None for no limit.

    Raises `HookFailed` if it cannot run, takes too long, or is ended by a signal.
    """
    # Files, not pipes: a process that the hook leaves behind would keep a pipe open.
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
                status = wait_for_end(hook, timeout)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(hook.pid, signal.SIGKILL)
                hook.wait()
            if status is None:
                raise HookFailed(
                    f"{path} took longer than {timeout or 0:g} seconds", hook=path.name
                )
            answer = HookResult(status, _beginning(out), _beginning(err))
    if status < 0:
        raise HookFailed(f"{path} was ended by signal {-status}", hook=path.name)
    return answer


def _waiting(env: Environment, document: dict[str, Any]) -> str:
    return " ".join((*env.hook_of, str(document["agent_id"])))


def _beginning(stream: IO[bytes]) -> bytes:
    stream.seek(0)
    return stream.read(_MAX_OUTPUT)


OUTGOING_TIMEOUT = 60.0
"""Seconds that the `outgoing` hook may take for one text: the agent, or `restore`, waits for it."""


def hand_out(env: Environment, document: dict[str, Any]) -> bool:
    """Give one text to the `outgoing` hook (docs/behaviour.md, "The outbox").

    Returns False if there is no hook. Raises `HookFailed` unless it exits 0.
    """
    hook = find_hook(env, OUTGOING, (document["name"] or "", document["agent_id"]))
    if hook is None:
        return False
    try:
        answer = run_hook(env, hook, jsontext.clean(document, set()), timeout=OUTGOING_TIMEOUT)
    except OSError as error:  # no space for its input
        raise HookFailed(f"{hook} cannot be asked: {error.strerror}", hook=OUTGOING) from error
    if answer.status:
        why = answer.reason or f"it exited {answer.status}"
        raise HookFailed(f"{hook} did not take the text: {why}", hook=OUTGOING)
    return True
