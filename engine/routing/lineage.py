"""The tree of agents: parents upwards, children downwards.

See docs/behaviour.md, "Lineage"; decision D27.

The link stands in the child's descriptor alone. A parent that is gone and a chain that leads back
to itself are refused by name; nothing here goes on for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.agents import each_agent
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.errors import Invalid, NoSuchAgent, SessionStateError, UsageError

if TYPE_CHECKING:
    from agentsdir.engine.agents import Listed
    from agentsdir.formats.directory.layout import AgentPaths, Layout
    from agentsdir.formats.directory.states import AgentState

MAX_DEPTH = 10
"""Levels below an agent without a parent."""


def parent_of(layout: Layout, state: AgentState) -> AgentPaths | None:
    """Return the parent's paths, or None for an agent that has none.

    Raises `NoSuchAgent` (kind ``missing-parent``) for a parent that is not there.
    """
    if state.parent is None:
        return None
    try:
        return layout.agent(state.parent)
    except (NoSuchAgent, UsageError):
        raise NoSuchAgent(
            f"agent {state.agent_id} has the parent {state.parent}, which is not in {layout.root}",
            hint="an archived parent can be brought back by `agentsdir archive --undo`",
            kind="missing-parent",
        ) from None


def ancestors(layout: Layout, state: AgentState) -> list[AgentPaths]:
    """Return an agent's parent, that one's parent, and so on to the one that has none.

    Raises `NoSuchAgent` (kind ``missing-parent``), `Invalid` (kind ``parent-cycle``) naming the
    agents on the way round, and what `read_agent` raises for a parent.
    """
    chain: list[AgentPaths] = []
    names = [state.agent_id]
    while (parent := parent_of(layout, state)) is not None:
        if parent.id in names:
            way = " → ".join((*names[names.index(parent.id) :], parent.id))
            raise Invalid(f"the parents of agent {names[0]} go round: {way}", kind="parent-cycle")
        chain.append(parent)
        names.append(parent.id)
        state = read_agent(parent).state
    return chain


def depth_of(layout: Layout, state: AgentState) -> int:
    """Return how many levels an agent stands below its root (errors of `ancestors`)."""
    return len(ancestors(layout, state))


def check_depth(layout: Layout, state: AgentState) -> None:
    """Raise `SessionStateError` (kind ``spawn-depth``) where an agent may have no children."""
    depth = depth_of(layout, state)
    if depth >= MAX_DEPTH:
        raise SessionStateError(
            f"agent {state.agent_id} stands {depth} levels below its root: "
            f"Maximum spawn depth ({MAX_DEPTH}) exceeded",
            kind="spawn-depth",
        )


def descendants(layout: Layout, agent_id: str) -> list[Listed]:
    """Return an agent's children, and theirs, each once and after its parent; closed ones too.

    Who needs them all holds the create lock. Agents that cannot be read name no parent, and are
    not among them.
    """
    children: dict[str, list[Listed]] = {}
    for listed in each_agent(layout):
        if listed.reading is not None and listed.reading.state.parent is not None:
            children.setdefault(listed.reading.state.parent, []).append(listed)
    found: list[Listed] = []
    seen, waiting = {agent_id}, [agent_id]
    for above in waiting:
        for child in children.get(above, ()):
            if child.paths.id not in seen:
                seen.add(child.paths.id)
                waiting.append(child.paths.id)
                found.append(child)
    return found
