"""Who an agent is that is made of another: keys and names are one agent's at a time (D27)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentsdir.engine.agents import each_agent
from agentsdir.engine.creation import check_unique, check_unused
from agentsdir.formats.directory import ids
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError

if TYPE_CHECKING:
    from agentsdir.formats.directory.layout import AgentPaths, Layout


def own_identity(
    layout: Layout,
    created: dict[str, Any],
    agent_id: str,
    name: str,
    login: str,
    *,
    keep: bool = False,
) -> dict[str, Any]:
    """Return the data of a `session.created` event as that of another agent.

    A subagent stays its parent's, under `name` or a free one; any other becomes a user's of its
    own: a task, a heartbeat and a conversation have one agent each. The caller holds the create
    lock.

    Args:
        keep: keep the key, which may be free here.

    Raises `AgentsdirError` (kind ``already-exists``) when another agent has the key, or a sibling
    the name.
    """
    # Whoever makes another of an ephemeral agent wants to have it.
    others = ("name", "parentAgentId", "ephemeral")
    made = {key: value for key, value in created.items() if key not in others}
    made["agent_id"] = agent_id
    descriptor = created["descriptor"]
    parent = descriptor.get("parentAgentId")
    if descriptor["type"] == "subagent":
        name = name or _free_name(layout, parent, str(descriptor.get("name")))
        made["descriptor"] = {**descriptor, "id": agent_id, "name": name}
        made["parentAgentId"] = parent
    elif keep:
        was = created["agent_id"]
        same = {key: agent_id if value == was else value for key, value in descriptor.items()}
        made["descriptor"] = same
    else:
        keys = {"connector": "cli", "userId": login, "channelId": agent_id}
        made["descriptor"] = {"type": "user", **keys}
    if name:
        made["name"] = ids.check_name(name)
    check_unused(layout, agent_id)
    check_unique(layout, made["descriptor"], name, agent_id)
    return made


def _free_name(layout: Layout, parent: Any, name: str) -> str:
    taken = {
        reading.state.name
        for _, reading, _ in each_agent(layout)
        if reading and reading.state.parent == parent
    }
    number = 2
    while f"{name[:100]}-{number}" in taken:
        number += 1
    return f"{name[:100]}-{number}"


def check_native(layout: Layout, native_id: str) -> None:
    """Refuse a second live agent of one native session.

    Raises `AgentsdirError` (kind ``already-exists``): both would write to one transcript.
    """
    paths = agent_of_native(layout, native_id)
    if paths is not None:
        raise AgentsdirError(
            f"agent {paths.id} already goes on with the session {native_id}",
            kind="already-exists",
            hint=f"`--get` prints it; `agentsdir fork {paths.id}` makes another of it",
        )


def agent_of_native(layout: Layout, native_id: str) -> AgentPaths | None:
    """Return the live agent that goes on with a native session."""
    for paths, reading, _ in each_agent(layout):
        if (
            reading is not None
            and reading.state.session.state is not SessionState.TERMINATED
            and native_id in (reading.state.native["id"], ids.dashed(reading.state.session.id))
        ):
            return paths
    return None
