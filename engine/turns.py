"""A message, its place in the queue, and the turns that are run until its own is over.

Decisions D16 and D17: one message, one turn, in log order; a message that a turn has started is
never run again by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.following_up import FollowingUp
from agentsdir.engine.inbox import Message, enqueue_and_read
from agentsdir.engine.provider_sessions import find_provider
from agentsdir.engine.running import Sender
from agentsdir.engine.scheduler import TurnScheduler
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent
from agentsdir.formats.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.engine.endings import TurnResult
    from agentsdir.engine.world import World
    from agentsdir.formats.directory.layout import AgentPaths
    from agentsdir.formats.directory.states import AgentState
    from agentsdir.formats.reading.stream import StreamEvent


class Waiting(NamedTuple):
    """How many seconds to wait for another turn to end, and for a slot; negative waits for ever."""

    turn: float = locks.FOREVER
    slot: float = locks.FOREVER


FOR_EVER = Waiting()


def send(
    world: World,
    paths: AgentPaths,
    content: list[dict[str, Any]],
    on_event: Callable[[StreamEvent], None],
    *,
    wait: float = locks.FOREVER,
    record: bool = False,
    permission_mode: str = "",
) -> TurnResult:
    """Give the agent a message from outside and run its turn (arguments of `Sender`, `say`)."""
    sender = Sender(on_event, record, permission_mode)
    return say(world, paths, Message(content), sender, Waiting(wait, wait))


def say(
    world: World,
    paths: AgentPaths,
    message: Message,
    sender: Sender,
    waiting: Waiting = FOR_EVER,
    *,
    alone: bool = False,
) -> TurnResult:
    """Give the agent a message, run the turns up to its own, and then what follows from them.

    Args:
        sender: what is wanted of the message's turn.
        alone: run no other agent's turns afterwards.

    Raises `SessionStateError` for a terminated session, `Busy` or `SlotsHeld` (the message stays
    queued), `ProviderError` when the turn failed (which is recorded), or when this root may start
    no provider (then there is no message either), and `UsageError` for a permission mode where no
    program could have one.
    """
    _check(world, paths, sender)
    with world.disk.settled():
        there = enqueue_and_read(world, paths, message)
        following = _following(world, paths, sender, waiting, alone=alone, known=there.state)
        return following.run_until(paths, there.message_id, sender, wait=waiting.turn)


def render(
    world: World,
    paths: AgentPaths,
    sender: Sender,
    waiting: Waiting = FOR_EVER,
    *,
    alone: bool = False,
) -> list[TurnResult]:
    """Run what waits in an agent's inbox; where that is nothing, have it go on by itself.

    A turn that fails does not keep the next message from being looked at. Arguments and errors of
    `say`; of several failures the last one is raised.
    """
    _check(world, paths, sender)
    with world.disk.settled():
        following = _following(world, paths, sender, waiting, alone=alone)
        return following.run_all(paths, sender, wait=waiting.turn)


def catch_up_to(
    world: World,
    paths: AgentPaths,
    message_id: str,
    sender: Sender,
    waiting: Waiting = FOR_EVER,
    *,
    alone: bool = False,
) -> TurnResult:
    """Run what waits in an agent's inbox up to a message (arguments and errors of `say`)."""
    _check(world, paths, sender)
    with world.disk.settled():
        following = _following(world, paths, sender, waiting, alone=alone)
        return following.run_until(paths, message_id, sender, wait=waiting.turn)


def _check(world: World, paths: AgentPaths, sender: Sender) -> None:
    world.check_trust()
    if sender.permission_mode and not find_provider(read_agent(paths).state)[1].runs_program:
        raise UsageError("--permission-mode is for providers that run a program")


def _following(
    world: World,
    paths: AgentPaths,
    sender: Sender,
    waiting: Waiting,
    *,
    alone: bool,
    known: AgentState | None = None,
) -> FollowingUp:
    scheduler = TurnScheduler(world, slot_wait=waiting.slot)
    if known is not None:
        scheduler.know(paths, known)
    following = FollowingUp(world, scheduler, alone=alone)
    following.listen(paths, sender)
    return following
