"""A message, its place in the queue, and the turns that are run until its own is over.

Decisions D16 and D17: one message, one turn, in log order; a message that a turn has started is
never run again by itself.
"""

from __future__ import annotations

from typing import Any

from agentsdir.engine.crashes import close_crashed_turn
from agentsdir.engine.holding import hold_turn
from agentsdir.engine.provider_sessions import find_provider
from agentsdir.engine.results import TurnResult, recorded_result
from agentsdir.engine.running import Sender, Turn, check_can_run
from agentsdir.engine.world import World
from agentsdir.formats.directory import locks
from agentsdir.formats.directory.agent import read_agent, write_agent
from agentsdir.formats.directory.layout import AgentPaths
from agentsdir.formats.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentsdir.formats.reading.stream import StreamEvent


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
    """Give the agent a message and run its turn.

    Args:
        content: text and image parts.
        on_event: called with each stream event of this message's turn.
        wait: seconds to wait for another turn to end; negative waits for ever.
        record: keep the stream events of this message's turn, if it is run here.
        permission_mode: the client's own word for it; empty for what the agent or config.toml say.

    Raises `SessionStateError` for a terminated session, `Busy` (the message stays queued),
    `ProviderError` when the turn failed (which is recorded), or when this root may start no
    provider (then there is no message either), and `UsageError` for a permission mode where no
    program could have one.
    """
    world.check_trust()
    if permission_mode and not find_provider(read_agent(paths).state)[1].runs_program:
        raise UsageError("--permission-mode is for providers that run a program")
    with world.disk.settled():
        return _send(world, paths, content, Sender(on_event, record, permission_mode), wait)


def _send(
    world: World,
    paths: AgentPaths,
    content: list[dict[str, Any]],
    sender: Sender,
    wait: float,
) -> TurnResult:
    message_id = world.ids.agent()
    with write_agent(paths, disk=world.disk) as writer:
        check_can_run(writer.state)
        data = {"message_id": message_id, "sender": "cli", "kind": "user", "content": content}
        writer.append("message.enqueued", data, world.now())
    queued = f"the message stays queued as {message_id}"
    with hold_turn(paths, wait=wait, hint=queued) as held, world.disk.settled():
        with write_agent(paths, disk=world.disk) as writer:
            state = writer.state
        state = close_crashed_turn(world, paths, state)
        while any(message["messageId"] == message_id for message in state.pending):
            check_can_run(state)
            message = state.pending[0]
            mine = message["messageId"] == message_id
            turn = Turn(world, paths, state, held, message, sender if mine else Sender(_ignore))
            if mine:
                return turn.run()
            state = turn.run_quietly()
    return recorded_result(paths, message_id, sender.on_event)


def _ignore(_event: StreamEvent) -> None:
    """Another sender's turn is in the log; this command prints its own only."""
