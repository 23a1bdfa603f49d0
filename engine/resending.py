"""Messages that could not be put into another agent's inbox, when they can be.

See docs/behaviour.md, "restore".

The log of the agent that tells has them as `message.unsent`. The next `restore` of either agent
puts each into the inbox of the other, once, and settles it with `message.resent`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.agents import find_readable
from agentsdir.engine.inbox import find_message
from agentsdir.engine.steps import Step, settled_step
from agentsdir.formats.directory.states import SessionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState


_KEPT = ("notice", "reply_to")


def tellers_of(layout: Layout, agents: set[str]) -> dict[str, list[AgentPaths]]:
    """Return, for some agents, the other agents that have something to tell them."""
    found: dict[str, list[AgentPaths]] = {}
    for agent_id in layout.agent_ids():
        if agent_id in agents or (one := find_readable(layout, agent_id)) is None:
            continue
        for to in {entry["to"] for entry in one[1].unsent.values()} & agents:
            found.setdefault(to, []).append(one[0])
    return found


def sending_steps(layout: Layout, state: AgentState) -> list[Step]:
    """Return what tells others what an agent could not tell them before.

    Who is still archived or damaged is left for later; who is gone or closed is told nothing.
    """
    steps: list[Step] = []
    for message_id, entry in state.unsent.items():
        found = find_readable(layout, entry["to"])
        if found is None and layout.is_taken(entry["to"]):
            continue
        if found is None or found[1].session.state is SessionState.TERMINATED:
            steps.append(settled_step(message_id, "dropped"))
        elif find_message(found[0], message_id) is not None:
            steps.append(settled_step(message_id, "delivered"))
        else:
            data = _as_said(state, entry["message"])
            says = f"told {found[0].id} what could not be told before"
            steps.append(Step(says, "message.enqueued", data, found[0], settles=message_id))
    return steps


def receiving_steps(
    layout: Layout, paths: AgentPaths, state: AgentState, tellers: Iterable[AgentPaths]
) -> list[Step]:
    """Return what puts into an agent's inbox what others could not tell it before."""
    if state.session.state is SessionState.TERMINATED:
        return []
    steps: list[Step] = []
    for teller in tellers:
        found = find_readable(layout, teller.id)
        for message_id, entry in found[1].unsent.items() if found is not None else ():
            if entry["to"] != paths.id or found is None:
                continue
            if find_message(paths, message_id) is None:
                data = _as_said(found[1], entry["message"])
                says = f"was told what {teller.id} could not tell it before"
                steps.append(Step(says, "message.enqueued", data))
            steps.append(settled_step(message_id, "delivered", teller))
    return steps


def _as_said(teller: AgentState, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as its teller may send it: in its own name, and asking for nothing."""
    kept: dict[str, Any] = {name: message[name] for name in _KEPT if name in message}
    said = {"message_id": message["message_id"], "content": message["content"]}
    return {**said, "sender": teller.agent_id, "kind": "system", **kept}
