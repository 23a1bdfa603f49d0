"""The user's executable hooks: when each runs, what it is given, and what its failure does (D34).

docs/configuration.md, "Hooks". `Services.hooks` finds and runs them. A hook runs once for each
occasion, in the process that brings it about, while no lock but `.turn` is held. One that fails is
recorded as `hook.failed` and blocks nothing, but for `before-send`, which refuses what it is asked.
`tool-confirmation` and `outgoing` are of `cli/tool_confirmation` and `engine/outbox`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from agentsdir.engine.inbox import as_content, find_message
from agentsdir.formats import jsontext
from agentsdir.formats.errors import (
    AgentsdirError,
    HookFailed,
    Invalid,
    NoSuchAgent,
    NotRecorded,
    ProviderError,
    SessionStateError,
    Uncertain,
)
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.state import SessionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.engine.inbox import Message
    from agentsdir.engine.result import TurnResult
    from agentsdir.engine.services import HookResult, Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.state import AgentState


BEFORE_SEND = "before-send"
AFTER_SEND = "after-send"
SESSION_CREATE = "session-create"
SESSION_CLOSE = "session-close"
COMPLETE = "complete"
ERROR = "error"


def message_to_send(services: Services, paths: AgentPaths, message: Message) -> Message:
    """Ask the hook `before-send`, and return the message that is to be sent.

    A message whose id is in the log is returned as it was queued then. Raises `SessionStateError`
    (kind ``cancelled``) if the hook says no, `HookFailed` if it fails, which is recorded, and
    `ProviderError` if there is a hook and this root may start nothing.
    """
    if not services.hooks.may_have(BEFORE_SEND):
        return message
    state = read_agent(paths).state
    if state.session.state is SessionState.TERMINATED:
        return message  # it cannot be queued
    try:
        hook = services.hooks.find(BEFORE_SEND, state)
        if hook is None:
            return message
        services.check_trust()
        if (there := queued_content(paths, message)) is not None:
            return message._replace(content=there)
        said = {"message_id": message.id or None, "sender": message.sender}
        document = {**_common(services, BEFORE_SEND, state), **said, "content": message.content}
        return message._replace(content=_answered(message, hook(document)))
    except HookFailed as failed:
        record_failure(services, paths, failed.hook, failed.message)
        raise


def queued_content(paths: AgentPaths, message: Message) -> list[dict[str, Any]] | None:
    """Return the content with which a message was queued before; None if it was not."""
    there = find_message(paths, message.id) if message.id else None
    content = there.data.get("content") if there is not None else None
    return content if isinstance(content, list) else None


def _answered(message: Message, answer: HookResult) -> list[dict[str, Any]]:
    if answer.status:
        raise cancelled(answer.reason or f"the hook {BEFORE_SEND} exited {answer.status}")
    if not answer.out.strip():
        return message.content
    said: Any = None
    with suppress(jsontext.JSONDecodeError, Invalid):
        said = jsontext.decode_exactly(answer.out)
    if isinstance(said, dict) and isinstance(reason := said.get("cancel"), str):
        raise cancelled(reason or f"the hook {BEFORE_SEND} said no")
    changed = said.get("content") if isinstance(said, dict) and said.get("cancel") is None else None
    try:
        return as_content(changed)
    except ValueError as flaw:
        what = f"neither a content nor a reason to cancel: {flaw}"
        raise HookFailed(f"the hook {BEFORE_SEND} printed {what}", hook=BEFORE_SEND) from None


def cancelled(reason: str) -> SessionStateError:
    """Return the error for a message that was not queued."""
    return SessionStateError(f"the message was not sent: {reason}", kind="cancelled")


def session_created(services: Services, paths: AgentPaths, origin: str) -> None:
    """Run the hook `session-create` for an agent that was made; no lock is held.

    Args:
        origin: `new`, `adopted`, `forked` or `spawned`.
    """

    def document(state: AgentState) -> dict[str, Any]:
        return {
            "origin": origin,
            "descriptor": dict(state.descriptor),
            "provider": state.session.provider_name,
            "model": state.session.model,
        }

    _inform(services, paths, SESSION_CREATE, document)


def session_closed(
    services: Services, paths: AgentPaths, reason: str, state: AgentState | None = None
) -> None:
    """Run the hook `session-close` for an agent that was closed.

    Args:
        reason: `close`, `parent` or `finished`.
        state: of an agent that is removed.
    """
    _inform(services, paths, SESSION_CLOSE, lambda _state: {"reason": reason}, state)


def turn_ended(
    services: Services,
    paths: AgentPaths,
    state: AgentState,
    message: dict[str, Any] | None,
    result: TurnResult,
    error: AgentsdirError | None,
) -> None:
    """Run the hooks for a turn whose end is recorded: `complete` or `error`, then `after-send`.

    Args:
        message: the turn's, as it stood in the inbox.
        error: why the turn was not completed; None if it was.
    """
    hooks = services.hooks
    own = COMPLETE if error is None else ERROR
    if not (hooks.may_have(own) or hooks.may_have(AFTER_SEND)):
        return
    turn = {**result.as_json(), "durability": services.disk.durability}
    failure = None if error is None else {"kind": error.kind, "message": error.message}
    said = {"turn": turn} if error is None else {"turn": turn, "error": failure}
    _inform(services, paths, own, lambda _state: said, state)
    if message is not None and was_sent(message):
        _inform(services, paths, AFTER_SEND, lambda _state: {"turn": turn, "error": failure}, state)


def was_sent(message: dict[str, Any]) -> bool:
    """Tell whether a message of an inbox was sent, and is no task, answer or notice."""
    return not (message.get("spawn") or message.get("notice") or message.get("replyTo"))


def _common(services: Services, hook: str, state: AgentState) -> dict[str, Any]:
    return {
        "hook": hook,
        "root": str(services.layout.root),
        "agent_id": state.agent_id,
        "session_id": state.session.id,
        "name": state.name or None,
        "cwd": state.cwd,
    }


def _inform(
    services: Services,
    paths: AgentPaths,
    hook: str,
    document: Callable[[AgentState], dict[str, Any]],
    state: AgentState | None = None,
) -> None:
    """Run a hook that only listens. Its failure is recorded and noted.

    None runs for a root that may start no provider.
    """
    if not services.hooks.may_have(hook):
        return
    try:
        services.check_trust()
        known = read_agent(paths).state if state is None else state
    except (NoSuchAgent, ProviderError):  # another process removed it, or it may run nothing
        return
    try:
        run = services.hooks.find(hook, known)
        if run is None:
            return
        answer = run({**_common(services, hook, known), **document(known)})
        if not answer.status:
            return
        message = f"the hook {hook} failed: {answer.reason or f'it exited {answer.status}'}"
    except HookFailed as failed:
        message = failed.message
    services.notify_user(message)
    record_failure(services, paths, hook, message)


def record_failure(services: Services, paths: AgentPaths, hook: str, message: str) -> None:
    """Append `hook.failed`, if the agent is there and its log takes it."""
    said = jsontext.clean({"hook": hook, "message": message}, set())
    try:
        with services.disk.synced_at_end(), write_agent(paths, disk=services.disk) as writer:
            writer.append("hook.failed", said, services.now())
    except (NotRecorded, Uncertain):
        raise
    except AgentsdirError:
        return  # it was removed or closed meanwhile
