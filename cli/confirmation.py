"""Who answers when a client asks whether a tool may run: a hook, the terminal, or nobody (D34)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import orjson

from agentsdir.adapters.contract import Decision, deny_all
from agentsdir.cli.hooks import find_hook, run_hook
from agentsdir.cli.output import note
from agentsdir.cli.terminal import inert
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from agentsdir.adapters.contract import ToolRequest
    from agentsdir.cli.environment import Environment
    from agentsdir.formats.directory.states import AgentState

HOOK = "tool-confirmation"
TERMINAL = Path("/dev/tty")
_SHOWN = 4000


class Confirmation:
    """Answers one agent's requests: its hook, else everybody's, else the person at the terminal.

    Args:
        state: whose requests; its name comes from the log, and chooses among the user's own hooks.
        terminal: where a person can be asked.
    """

    def __init__(self, env: Environment, state: AgentState, terminal: Path = TERMINAL) -> None:
        self._env = env
        self._state = state
        self._terminal = terminal

    def __call__(self, request: ToolRequest) -> Decision:
        """Return the answer. Raises `HookFailed`, having said why, for a hook that gave none."""
        names = (self._state.name or "", self._state.agent_id)
        try:
            hook = find_hook(self._env, HOOK, names)
            if hook is not None:
                return self._ask_hook(hook, request)
        except HookFailed as failed:
            note(self._env, f"{failed.message}; {request.tool_name} is denied")
            raise
        return self._ask_person(request)

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
        refused = deny_all(request)
        try:
            if not self._env.stderr.isatty():
                raise OSError
            terminal = self._terminal.open("r+b", buffering=0)
        except OSError:
            reason = "there is neither a tool-confirmation hook nor a terminal to ask at"
            note(self._env, f"{request.tool_name} is denied: {reason}")
            return refused
        answer = b""
        with terminal, suppress(OSError):  # a background job may not use it
            given = orjson.dumps(jsontext.clean(request.input, set())).decode()
            if len(given) > _SHOWN:
                given = f"{given[:_SHOWN]}… ({len(given)} characters)"
            where = "" if request.conversation == "main" else f" of {request.conversation}"
            question = f"\n{request.tool_name}{where}: {given}"
            terminal.write(f"{inert(question)}\nAllow? [y/N] ".encode())
            answer = terminal.readline(100)
        if answer.strip().lower() in (b"y", b"yes"):
            return Decision(allowed=True)
        return Decision(allowed=False, reason="the user said no")


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
        raise HookFailed(f"{hook} answered no decision", hook=HOOK)
    if behavior == "deny":
        return Decision(allowed=False, reason=message or f"{hook.name} said no")
    changed = said.get("updatedInput")
    if changed is not None and not isinstance(changed, dict):
        raise HookFailed(f"{hook} answered an updatedInput that is no object", hook=HOOK)
    return Decision(allowed=True, reason=message, input=changed)
