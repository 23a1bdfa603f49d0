"""Handing texts to the user's `outgoing` hook (docs/behaviour.md, "The outbox"; decision D34)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.cli.hooks import find_hook, run_hook
from agentsdir.engine.outbox import OUTGOING
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed

if TYPE_CHECKING:
    from agentsdir.cli.environment import Environment

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
