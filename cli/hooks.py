"""Running the user's hooks: texts that go out, and questions whether a tool may run."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.processes import dying_with_parent
from agentsdir.adapters.protocol import Decision
from agentsdir.cli.asking import ask
from agentsdir.cli.config import config_home, foreign
from agentsdir.cli.environment import HOOK_OF
from agentsdir.cli.output import note, one_line
from agentsdir.engine.outbox import OUTGOING
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.adapters.protocol import ToolRequest
    from agentsdir.cli.environment import Environment
    from agentsdir.formats.store.state import AgentState


# Running a user's hook: an executable of theirs, one JSON document in, one out (decision D34).
#
# Hooks stand in the user's configuration and never in a root (decision D33).

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


# Who answers when a client asks whether a tool may run: a hook, the terminal, or nobody (D34).

CONFIRMATION = "tool-confirmation"
_NAME = 100
_FOLDER = 300
_HEAD, _TAIL = 3000, 1000


class Confirmation:
    """Answers one agent's requests: its hook, else everybody's, else the person at the terminal.

    Each no is said on stderr, but the person's own.

    Args:
        state: whose requests; its name comes from the log, and chooses among the user's own hooks.
    """

    def __init__(self, env: Environment, state: AgentState) -> None:
        self._env = env
        self._state = state

    def __call__(self, request: ToolRequest) -> Decision:
        """Return the answer. Raises `HookFailed`, having said why, for a hook that gave none."""
        names = (self._state.name or "", self._state.agent_id)
        try:
            hook = find_hook(self._env, CONFIRMATION, names)
            if hook is None:
                return self._ask_person(request)
            decision = self._ask_hook(hook, request)
        except HookFailed as failed:
            self._tell_denied(request, failed.message)
            raise
        if not decision.allowed:
            self._tell_denied(request, decision.reason)
        return decision

    def _tell_denied(self, request: ToolRequest, reason: str) -> None:
        note(self._env, f"{_cut(request.tool_name, _NAME)} is denied: {reason}")

    def _ask_hook(self, hook: Path, request: ToolRequest) -> Decision:
        state = self._state
        document = {
            "agent_id": state.agent_id,
            "session_id": state.session.id,
            "tool_name": request.tool_name,
            "tool_use_id": request.tool_use_id,
            "input": request.input,
            "cwd": state.cwd,
            "conversation": request.conversation,
        }
        answer = run_hook(self._env, hook, jsontext.clean(document, set()))
        if answer.status:
            return Decision(allowed=False, reason=answer.reason or f"{hook.name} said no")
        return _decision(hook, answer.out)

    def _ask_person(self, request: ToolRequest) -> Decision:
        if not self._env.stderr.isatty():
            reason = "there is neither a tool-confirmation hook nor a terminal to ask at"
            self._tell_denied(request, reason)
            return Decision(allowed=False, reason=reason)
        state = self._state
        whose = (
            f"agent {_cut(state.name, _NAME)} ({state.agent_id})"
            if state.name
            else (f"agent {state.agent_id}")
        )
        folder = state.native.get("cwd") or state.cwd
        within = "" if request.conversation == "main" else f", in its {request.conversation},"
        given = orjson.dumps(jsontext.clean(request.input, set())).decode()
        tool = _cut(request.tool_name, _NAME)
        asks = f"{whose}{_cut(within, _NAME)} wants to use {tool} in {_cut(folder, _FOLDER)}:"
        lines = [asks, _middle_cut(given)]
        try:
            allowed = ask(
                self._env.terminal, lines, "Allow? [y/N] ", self._env.tell, whose=one_line(whose)
            )
        except OSError as error:
            reason = f"the terminal cannot be asked at: {error.strerror}"
            self._tell_denied(request, reason)
            return Decision(allowed=False, reason=reason)
        return Decision(allowed=allowed, reason="" if allowed else "the user said no")


def _cut(text: str, length: int) -> str:
    """Return text that a log or a model chose, made short enough to leave the question in sight."""
    return text if len(text) <= length else f"{text[:length]}…"


def _middle_cut(text: str) -> str:
    """Return text with its middle left out where it is long: both of its ends are shown."""
    left_out = len(text) - _HEAD - _TAIL
    if left_out <= 0:
        return text
    return f"{text[:_HEAD]} […{left_out} characters are not shown…] {text[-_TAIL:]}"


def _decision(hook: Path, out: bytes) -> Decision:
    """Return what a hook's output means; it must be exactly one of the documents of SPEC.md."""
    if not out.strip():
        return Decision(allowed=True)
    said: Any = None
    with suppress(orjson.JSONDecodeError):
        said = orjson.loads(out)
    behavior = said.get("behavior") if isinstance(said, dict) else None
    message = said.get("message", "") if isinstance(said, dict) else None
    if behavior not in ("allow", "deny") or not isinstance(message, str):
        raise HookFailed(f"{hook} answered no decision", hook=CONFIRMATION)
    if behavior == "deny":
        return Decision(allowed=False, reason=message or f"{hook.name} said no")
    changed = said.get("updatedInput")
    if changed is not None and not isinstance(changed, dict):
        raise HookFailed(f"{hook} answered an updatedInput that is no object", hook=CONFIRMATION)
    return Decision(allowed=True, reason=message, input=changed)


# Handing texts to the user's `outgoing` hook (docs/behaviour.md, "The outbox"; decision D34).

PATIENCE = 60.0
"""Seconds that a connector may take for one text: the agent, and a restoration, wait for it."""


def hand_out(env: Environment, document: dict[str, Any]) -> bool:
    """Give one text to the hook; exit 0 says that it was taken. False where there is no hook.

    Raises `HookFailed` for a hook that cannot run, is ended by a signal, or says no.
    """
    hook = find_hook(env, OUTGOING, (document["name"] or "", document["agent_id"]))
    if hook is None:
        return False
    try:
        answer = run_hook(env, hook, jsontext.clean(document, set()), timeout=PATIENCE)
    except OSError as error:  # there is no room for what it is given
        raise HookFailed(f"{hook} cannot be asked: {error.strerror}", hook=OUTGOING) from error
    if answer.status:
        why = answer.reason or f"it exited {answer.status}"
        raise HookFailed(f"{hook} did not take the text: {why}", hook=OUTGOING)
    return True
