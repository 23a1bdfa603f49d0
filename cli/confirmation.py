"""Who answers when a client asks whether a tool may run: a hook, the terminal, or nobody (D34)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.protocol import Decision
from agentsdir.cli.asking import ask
from agentsdir.cli.hooks import find_hook, run_hook
from agentsdir.cli.output import note
from agentsdir.cli.terminal import one_line
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.adapters.protocol import ToolRequest
    from agentsdir.cli.environment import Environment
    from agentsdir.formats.store.state import AgentState

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
