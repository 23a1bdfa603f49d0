"""What people call an agent: its name and its tags.

See docs/behaviour.md, "Names, tags and settings"; D27.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.routing import routes
from agentsdir.formats.directory import ids, locks
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import AgentsdirError, SessionStateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.agent import AgentWriter
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def rename(world: World, paths: AgentPaths, name: str) -> AgentState:
    """Give an agent another name; one at work too, and nothing for the name that it has.

    Raises `UsageError` (kind ``bad-name``), `SessionStateError` for a closed agent, and
    `AgentsdirError` (kind ``already-exists``) when a live sibling has the name.
    """
    ids.check_name(name)
    with (
        locks.hold(world.layout.create_lock, brief=True, what="the agents directory"),
        world.disk.settled(),
        write_agent(paths, disk=world.disk) as writer,
    ):
        _check_open(writer)
        if writer.state.name != name:
            key = routes.name_key(writer.state.parent, name)
            if (found := routes.search(world.layout, [key])) is not None:
                raise AgentsdirError(
                    f"agent {found[0].paths.id} already is {routes.says(key)}",
                    kind="already-exists",
                )
            writer.append("agent.renamed", {"name": name}, world.now())
        return writer.state


def tag(world: World, paths: AgentPaths, add: Sequence[str], remove: Sequence[str]) -> AgentState:
    """Add tags to an agent and take others away; nothing where that changes nothing.

    Raises `UsageError` (kind ``bad-tag``), and `SessionStateError` for a closed agent.
    """
    for one in (*add, *remove):
        ids.check_tag(one)
    with world.disk.settled(), write_agent(paths, disk=world.disk) as writer:
        _check_open(writer)
        tags = sorted({*writer.state.tags, *add} - {*remove})
        if tags != writer.state.tags:
            writer.append("agent.tagged", {"tags": tags}, world.now())
        return writer.state


def _check_open(writer: AgentWriter) -> None:
    if writer.state.session.state is SessionState.TERMINATED:
        message = f"agent {writer.paths.id} is closed, and keeps its name and tags"
        raise SessionStateError(message, kind="closed")
