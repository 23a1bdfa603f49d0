"""Whether an agent may use a tool: a hook, a rule or the user says (decision D34).

See docs/configuration.md, "Tool confirmation".
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.protocol import Decision, deny_all
from agentsdir.cli.confirm import ask_at_terminal
from agentsdir.cli.grants import (
    Rule,
    agent_scope,
    change_grants,
    folder_of,
    folder_scope,
    kept_rule,
    read_grants,
    rules_allowing,
    scopes_for,
    takes_folder_rules,
)
from agentsdir.cli.hooks import find_hook, hook_folders, run_hook
from agentsdir.cli.output import note
from agentsdir.cli.questions import Question
from agentsdir.formats import jsontext
from agentsdir.formats.errors import AgentsdirError, HookFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.adapters.protocol import ToolRequest
    from agentsdir.cli.environment import Environment
    from agentsdir.cli.grants import Scope
    from agentsdir.cli.questions import Answer, Keep
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState


CONFIRMATION = "tool-confirmation"
_NAME = 100


class ToolConfirmation:
    """Decides whether an agent may use a tool: by a hook, else by the user's rules, else by asking.

    A hook's no is final. A subagent has no user to ask (decision D34): it may do what a rule of its
    own allows, if a hook does not deny that. Each denial is noted on stderr, except one that the
    user gave.

    Args:
        state: the agent's. Its name comes from the log, and only chooses among the user's hooks.
        now: returns the time of a rule that is kept.
    """

    def __init__(
        self, env: Environment, state: AgentState, now: Callable[[], str] = lambda: ""
    ) -> None:
        self._env = env
        self._state = state
        self._now = now
        self._rules_of_turn: set[str] = set()
        self._has_noted = False

    def __call__(self, request: ToolRequest) -> Decision:
        """Return the decision. Raises `HookFailed` if the hook gives none; that is noted, too."""
        is_allowed = self._is_allowed(request)
        is_subagent = self._state.descriptor.get("type") == "subagent"
        if is_subagent and not is_allowed:
            return deny_all(request)
        try:
            hook = self._hook()
            decision = self._ask_hook(hook, request) if hook else None
        except HookFailed as failed:
            self._note_denial(request, failed.message)
            raise
        if decision is not None:
            if not decision.allowed:
                self._note_denial(request, decision.reason)
            return decision
        return Decision(allowed=True) if is_allowed else self._ask_user(request)

    def _is_allowed(self, request: ToolRequest) -> bool:
        """Tell whether a rule that holds now allows a call."""
        return not rules_allowing(request).isdisjoint((*self._rules_of_turn, *self.rules()))

    def rules(self) -> tuple[str, ...]:
        """Return the rules of the user that hold for the agent now: they may change in a turn."""
        rules = read_grants(self._env, quiet=self._has_noted).rules
        self._has_noted = True
        provider = self._state.session.provider_name
        candidates = [rule for rule in rules if rule.provider == provider]
        return tuple(rule.rule for rule in candidates if rule.scope in self._scopes)

    @cached_property
    def _scopes(self) -> frozenset[Scope]:
        # In a turn they stay; of an imported agent they are looked for in all of its log.
        return scopes_for(self._paths, self._state)

    @property
    def has_hook(self) -> bool:
        """Whether a hook is asked, or would be if its file were right."""
        try:
            return self._hook() is not None
        except HookFailed:
            return True

    def _hook(self) -> Path | None:
        return find_hook(self._env, CONFIRMATION, hook_folders(self._state))

    def _note_denial(self, request: ToolRequest, reason: str) -> None:
        tool = request.tool_name
        note(self._env, f"{tool if len(tool) <= _NAME else f'{tool[:_NAME]}…'} is denied: {reason}")

    def _ask_hook(self, hook: Path, request: ToolRequest) -> Decision | None:
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

    def _ask_user(self, request: ToolRequest) -> Decision:
        """Ask the user. No answer is a no."""
        question = self._question(request)
        take = partial(self._decided, question)

        def settled() -> Decision | None:
            # The answer to a question that went before may have made a rule.
            return Decision(allowed=True) if self._is_allowed(request) else None

        began = time.monotonic()
        try:
            if self._env.ask is None:
                decision = ask_at_terminal(self._env, question, settled, take)
            else:
                answer = self._env.ask(question)
                decision = None if answer is None else take(answer)
        except OSError as error:
            reason = f"cannot ask at the terminal: {error.strerror}"
        else:
            if self._env.on_asked is not None:
                self._env.on_asked(request.tool_use_id, time.monotonic() - began)
            if decision is not None:
                return decision
            reason = "there is neither a tool-confirmation hook nor a terminal to ask at"
            if self._env.ask is not None:
                reason = "the question was not answered"
        self._note_denial(request, reason)
        return Decision(allowed=False, reason=reason)

    def _question(self, request: ToolRequest) -> Question:
        state = self._state
        rule = kept_rule(request)
        keeps: list[Keep] = ["once"]
        if rule:
            keeps += ["turn", "agent"]
            if takes_folder_rules(self._paths, state):
                keeps.append("folder")
        return Question(
            state.agent_id,
            state.name or "",
            state.session.provider_name,
            str(self._env.layout.root),
            folder_of(state),
            request.conversation,
            request.tool_name,
            request.tool_use_id,
            request.input,
            rule,
            tuple(keeps),
            request.is_void,
        )

    def _decided(self, question: Question, answer: Answer) -> Decision:
        if not answer.allowed:
            reason = f"the user said no: {answer.reason}" if answer.reason else "the user said no"
            return Decision(allowed=False, reason=reason)
        rule = question.rule
        if answer.keep == "once" or answer.keep not in question.keeps or not rule:
            return Decision(allowed=True)
        self._rules_of_turn.add(rule)
        if answer.keep != "turn":
            self._record(rule, answer.keep)
        # The client would not ask about it again, and the hook is to be asked each time.
        return Decision(allowed=True, rule="" if self.has_hook else rule)

    def _record(self, rule: str, keep: Keep) -> None:
        """Write a rule into grants.json. The yes stands where that fails, which is noted."""
        env, state = self._env, self._state
        try:
            scope = agent_scope(self._paths, state)
            if keep == "folder":
                scope = folder_scope(Path(folder_of(state)))
            kept = Rule(scope, state.session.provider_name, rule, self._now())
            change_grants(env, lambda grants: grants.with_rule(kept))
        except AgentsdirError as error:
            note(env, f"it is allowed for this turn, and not kept: {error.message}")

    @property
    def _paths(self) -> AgentPaths:
        return self._env.layout.agent(self._state.agent_id)


def _decision(hook: Path, out: bytes) -> Decision | None:
    """Return the decision that a hook printed (docs/configuration.md, "Tool confirmation").

    It is None where the hook leaves it to the user's rules and to the user.
    """
    if not out.strip():
        return Decision(allowed=True)
    document: Any = None
    with suppress(orjson.JSONDecodeError):
        document = orjson.loads(out)
    behavior = document.get("behavior") if isinstance(document, dict) else None
    message = document.get("message", "") if isinstance(document, dict) else None
    if behavior not in ("allow", "deny", "ask") or not isinstance(message, str):
        raise HookFailed(f"{hook} printed no valid decision", hook=CONFIRMATION)
    if behavior == "ask":
        return None
    if behavior == "deny":
        return Decision(allowed=False, reason=message or f"{hook.name} said no")
    changed = document.get("updatedInput")
    if changed is not None and not isinstance(changed, dict):
        raise HookFailed(
            f"{hook} printed an updatedInput that is no JSON object", hook=CONFIRMATION
        )
    return Decision(allowed=True, reason=message, input=changed)
