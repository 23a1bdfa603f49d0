"""Finding and running the user's hooks (decision D34; docs/configuration.md, "Hooks").

A hook is an executable that reads one JSON document and may print one. Hooks are in the user's
configuration and never in a root (decision D33). `engine/hooks` says when each one runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from functools import cached_property, partial
from typing import IO, TYPE_CHECKING, Any

from agentsdir.adapters.processes import dying_with_parent, wait_for_end
from agentsdir.cli.config import ownership_flaw
from agentsdir.cli.environment import HOOK_OF, HOOKED
from agentsdir.engine.hooks import SESSION_CREATE
from agentsdir.engine.outbox import OUTGOING
from agentsdir.engine.services import HookResult
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.cli.environment import Environment
    from agentsdir.engine.services import RunHook
    from agentsdir.formats.store.state import AgentState


_MAX_REASON = 2000
"""Characters of a hook's standard error that are shown."""
_MAX_OUTPUT = 16 * 1024 * 1024
"""Bytes of a hook's output that are read."""


TIME_LIMITS = {
    "before-send": 60.0,
    "after-send": 60.0,
    "session-create": 60.0,
    "session-close": 60.0,
    "complete": 60.0,
    "error": 60.0,
}
"""Seconds that a hook may take, by its name: a command, or the agent's next turn, waits for it."""
_AGENTS = "agents"
"""The folder with a folder of hooks for each agent that has its own."""


class Hooks:
    """The hooks of `TIME_LIMITS`. The folder is looked at once, so an object is for one command."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    @cached_property
    def _names(self) -> frozenset[str]:
        try:
            return frozenset(path.name for path in _folder(self._env).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        except OSError:  # `find_hook` says what is wrong with it
            return frozenset(TIME_LIMITS)

    def may_have(self, hook: str) -> bool:
        """Return whether an agent may have a hook of this name."""
        return hook in self._names or _AGENTS in self._names

    def find(self, hook: str, state: AgentState) -> RunHook | None:
        """Return what runs the hook of this name for an agent; None if there is none.

        Where a hook of the agent led to this process, there is none: else it might never end.
        """
        env = self._env
        if not env.hooked.isdisjoint((hook, state.agent_id)):
            return None
        is_subagent = state.descriptor.get("type") == "subagent"
        path = find_hook(env, hook, hook_folders(state), own_only=is_subagent)
        return None if path is None else partial(_run_in_time, env, path)


def _run_in_time(env: Environment, path: Path, document: dict[str, Any]) -> HookResult:
    try:
        said = jsontext.clean(document, set())
        return run_hook(env, path, said, timeout=TIME_LIMITS[path.name])
    except OSError as error:  # no space for its input
        raise HookFailed(f"{path} cannot be asked: {error.strerror}", hook=path.name) from error


def _folder(env: Environment) -> Path:
    return env.config_folder / "hooks"


def hook_folders(state: AgentState) -> tuple[str, ...]:
    """Return the names of the folders with an agent's own hooks, in the order of the search.

    A name that came with a bundle was chosen by a stranger: it finds none.
    """
    return (state.agent_id,) if state.imported else (state.name or "", state.agent_id)


def find_hook(
    env: Environment, name: str, agents: tuple[str, ...], *, own_only: bool = False
) -> Path | None:
    """Return the hook of a name: the first that is for one of `agents`, else that for all agents.

    Args:
        agents: the folders of the agent's own hooks.
        own_only: pass over the one for all agents.

    Raises `HookFailed` for a file in that place which is not an executable of this user: a hook
    must not be skipped because its file is wrong.
    """
    folder = _folder(env)
    own = [folder / _AGENTS / agent / name for agent in agents if _is_file_name(agent)]
    for path in own if own_only else (*own, folder / name):
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
                    env={**env.variables, **_variables(env, path.name, str(document["agent_id"]))},
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
            reason = _beginning(err).decode(errors="replace").strip()[:_MAX_REASON]
            answer = HookResult(status, _beginning(out), reason)
    if status < 0:
        raise HookFailed(f"{path} was ended by signal {-status}", hook=path.name)
    return answer


def _variables(env: Environment, hook: str, agent_id: str) -> dict[str, str]:
    # A new agent has no name yet by which its own hooks could be kept from making another.
    led = {*env.hooked, agent_id, *([hook] if hook == SESSION_CREATE else [])}
    return {HOOK_OF: " ".join((*env.hook_of, agent_id)), HOOKED: " ".join(sorted(led))}


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
