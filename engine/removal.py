"""Removing an agent with all it has (SPEC.md, "Locks and durability")."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.engine.holding import hold_turn
from agentsdir.formats.directory import documents, locks
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.directory.publishing import withdraw_agent
from agentsdir.formats.directory.slots import Slots
from agentsdir.formats.errors import NotRecorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState


@contextmanager
def hold_agent(world: World, paths: AgentPaths) -> Iterator[None]:
    """Hold what keeps an agent where it is: no agent is made meanwhile, and this one has no turn.

    Raises `Busy` when a turn runs, `NoSuchAgent` when the agent is gone.
    """
    create = world.layout.create_lock
    with (
        locks.hold(create, brief=True, what="the agents directory"),
        hold_turn(paths, hint="its turn has to end first"),
    ):
        yield


def remove_agent(
    world: World, paths: AgentPaths, *, only_if: Callable[[AgentState], bool] | None = None
) -> bool:
    """Remove an agent's folder with everything in it; tell whether it was.

    Whoever waits for the agent is told that it is gone.

    Args:
        only_if: says of the agent, which nobody can write to then, whether it is to go. Without it
            nothing in the folder is read.

    Raises what `hold_agent` raises, `NotRecorded` when nothing was removed, or (kind
    ``half-removed``) when the agent is gone but not all of its files: then `restore` removes the
    rest, as it does after a crash.
    """
    with hold_agent(world, paths):
        with locks.hold_undisturbed(paths.lock, what=f"the log of agent {paths.id}") as held:
            held.check()
            if only_if is not None and not only_if(read_agent(paths).state):
                return False
            Slots(world.layout).leave(paths.id)
            rest = withdraw_agent(world.layout, paths, world.disk)
        try:
            # Under the create lock, so that no `restore` sweeps it at the same time.
            documents.remove(rest)
        except NotRecorded as error:
            raise NotRecorded(
                f"agent {paths.id} is gone, but not all of its files: {error.message}",
                hint="`agentsdir restore` removes what is left",
                kind="half-removed",
            ) from error
    return True
