"""A subagent's answer, for whoever spawned it and waits (docs/behaviour.md, "Spawning")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentsdir.engine.endings import TurnResult
from agentsdir.engine.spawning.telling import shown
from agentsdir.engine.turns import catch_up_to
from agentsdir.formats.errors import NoSuchAgent, ProviderError

if TYPE_CHECKING:
    from agentsdir.engine.running import Sender
    from agentsdir.engine.spawning.children import Child
    from agentsdir.engine.turns import Waiting
    from agentsdir.engine.world import World


def run_child(world: World, child: Child, sender: Sender, waiting: Waiting) -> TurnResult:
    """Run a subagent's first turn, if nobody has, and return how it ended.

    Raises what `catch_up_to` raises.
    """
    try:
        return catch_up_to(world, child.paths, child.message_id, sender, waiting)
    except NoSuchAgent:
        # It was ephemeral, and somebody else ran it: its parent's log has what it said.
        block = shown(child.parent, [child.paths.id]).get(child.paths.id, {})
        if block.get("status") == "success":
            said = str(block.get("output"))
            return TurnResult(child.message_id, None, "completed", said, None, None)
        if block.get("status") == "error":
            raise ProviderError(str(block.get("output"))) from None
        raise
