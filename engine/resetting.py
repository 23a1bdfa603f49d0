"""Beginning a session's history anew (decision D22; docs/behaviour.md, "Sessions and turns")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.native_changes import change_native
from agentsdir.formats.directory import ids
from agentsdir.formats.directory.agent import write_agent
from agentsdir.formats.directory.states import SessionState
from agentsdir.formats.errors import SessionStateError

if TYPE_CHECKING:
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


def reset(world: World, paths: AgentPaths, message: str = "", *, wait: float = 0) -> AgentState:
    """Let the next turn begin without any that went before; nothing is deleted.

    Args:
        message: what stands at the marker in the history; empty for nothing.
        wait: seconds to wait for a turn to end; negative waits for ever.

    Raises `SessionStateError` for a terminated session, and `Busy`.
    """
    with hold_turn(paths, wait=wait), world.disk.settled():
        state = close_crashed_turn(world, paths)
        if state.session.state is SessionState.TERMINATED:
            raise SessionStateError(f"agent {paths.id}: a terminated session cannot be reset")
        with write_agent(paths, disk=world.disk, known=state) as writer:
            # In this order: whoever dies in between leaves no marker before a native session that
            # still knows what stood before it.
            change_native(writer, ids.dashed(world.ids.session()), "reset", world.now())
            marker = {"message": message} if message else {}
            writer.append("history.reset", marker, world.now())
            return writer.state
