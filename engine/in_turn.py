"""Requests of a turn's own program, which are carried out after the turn (decisions D18, D19).

docs/behaviour.md, "After a turn".
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentsdir.engine.hooks import message_to_send
from agentsdir.engine.inbox import enqueue
from agentsdir.engine.turn import check_can_run
from agentsdir.formats.errors import SessionStateError, UsageError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent, write_agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentsdir.engine.inbox import Message
    from agentsdir.engine.services import Services
    from agentsdir.formats.store.agent import AgentWriter
    from agentsdir.formats.store.layout import AgentPaths


def queue(services: Services, paths: AgentPaths, message: Message) -> str:
    """Put a message into an inbox, after the user's hook was asked; return its id.

    Raises what `message_to_send` and `enqueue` raise.
    """
    return enqueue(services, paths, message_to_send(services, paths, message))


@contextmanager
def turn_writer(services: Services, paths: AgentPaths, turn_id: str) -> Iterator[AgentWriter]:
    """Open the log of an agent for a record of its running turn.

    Raises `SessionStateError` (kind ``turn-over``) if the turn does not run any more.
    """
    with write_agent(paths, disk=services.disk) as writer:
        turn = writer.state.open_turn
        open_turn = turn is not None and turn["turnId"] == turn_id and not turn["ended"]
        if not open_turn or not locks.is_held(paths.turn):
            raise SessionStateError(
                f"the turn {turn_id} of agent {paths.id} is over",
                hint="what a turn started cannot speak for it afterwards",
                kind="turn-over",
            )
        yield writer


def queue_from_turn(
    services: Services, sender: AgentPaths, turn_id: str, target: AgentPaths, message: Message
) -> str:
    """Put a message from an agent's turn into an inbox; return its id. It starts no turn.

    Raises what `turn_writer` and `enqueue` raise.
    """
    with turn_writer(services, sender, turn_id):
        pass  # raises for a turn that is over
    return queue(services, target, message)


def send_from_turn(
    services: Services, sender: AgentPaths, turn_id: str, target: AgentPaths, message: Message
) -> str:
    """Put a message into another agent's inbox that runs after the sender's turn; return its id.

    Raises what `turn_writer` and `enqueue` raise.
    """
    if message.sync and target.id == sender.id:
        raise UsageError("an agent cannot wait for its own answer", hint="leave --sync out")
    check_can_run(read_agent(target).state)
    message = message_to_send(services, target, message)
    message = message._replace(id=message.id or services.ids.agent())
    data = {"message_id": message.id, "to": target.id, "turn_id": turn_id}
    # First: if the turn is over, the message is not sent.
    with turn_writer(services, sender, turn_id) as writer:
        writer.append(
            "message.sent", data | ({"sync": True} if message.sync else {}), services.now()
        )
    return enqueue(services, target, message)
