"""Finding the agent that a message is for, or making it.

See docs/behaviour.md, "Routing"; decision D27.

Two processes that look for the same key at the same time get one agent: whoever does not find it
takes the create lock, and looks again before making it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agentsdir.engine.agents import find_agent
from agentsdir.engine.creation import (
    check_fields,
    check_wanted,
    make_agent,
    root_held,
)
from agentsdir.engine.routing import routes
from agentsdir.engine.routing.lineage import ancestors
from agentsdir.engine.routing.strategies import FOREGROUND, resolve
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from agentsdir.engine.creation import (
        NewAgent,
    )
    from agentsdir.engine.routing.routes import Key
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths, Layout


class Target(NamedTuple):
    """The agent that was meant, and whether it had to be made."""

    paths: AgentPaths
    made: bool


def find_or_create(world: World, wanted: NewAgent) -> Target:
    """Return the live agent that has the key of `wanted`, or make it of the rest of `wanted`.

    What is there already stays as it is. Raises `UsageError` where `wanted` has no key, for a name
    is one too, and what `create_agent` raises, but for an agent that is there.
    """
    check_fields(wanted)
    layout = world.layout
    layout.check_version(writing=True)
    key = _key(layout, wanted)
    if (found := routes.look_up(layout, key)) is not None:
        return Target(found, made=False)
    # Before the lock is taken, let alone a folder made.
    check_wanted(layout, wanted)
    with root_held(world):
        found = routes.look_up(layout, key)
        if found is None and (there := routes.search(layout, [key])) is not None:
            found = there[0].paths
        made = found is None
        agent_id = make_agent(world, wanted) if found is None else found.id
        routes.put(layout, key, agent_id, world.disk)
    return Target(layout.agent(agent_id), made)


def _key(layout: Layout, wanted: NewAgent) -> Key:
    if wanted.kind == "cron":
        return {"type": "cron", "id": wanted.cron}
    if wanted.kind == "heartbeat":
        return {"type": "heartbeat"}
    if wanted.kind == "subagent":
        return routes.name_key(find_agent(layout, wanted.parent).id, wanted.name)
    if wanted.connector:
        names = {"connector": wanted.connector, "userId": wanted.user}
        return {"type": "user", **names, "channelId": wanted.channel}
    if not wanted.name:
        raise UsageError("there is nothing to find it by: a name, a conversation, a task")
    return routes.name_key(None, wanted.name)


def default_target(world: World, sender: AgentPaths) -> AgentPaths:
    """Return whom an agent's message is for when it names nobody (seed agent-types).

    A subagent's parent, and for any other the most recent foreground agent that is not itself.

    Raises `NoSuchAgent` for a parent that is not there or when there is no such agent, `Invalid`
    (kind ``parent-cycle``) for parents that go round.
    """
    state = read_agent(sender).state
    if state.parent is not None:
        return ancestors(world.layout, state)[0]
    resolved = resolve(world.layout, FOREGROUND, but=sender.id)
    for listed in resolved.unreadable:
        world.tell(f"passed over {listed.paths.id}, which cannot be read")
    return resolved.paths
