"""The outbox: texts for users behind connectors, and their delivery to the hook.

See docs/behaviour.md, "The outbox". A text waits from its `outgoing` record to its
`outgoing.delivered`. Texts are delivered in the order of the log, under the agent's `.turn`, so
that two processes never deliver the same text. A refused text stops the later ones. After a crash
between the hook and the record a text is delivered again: at least once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.engine.recovery import close_crashed_turn
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats import jsontext
from agentsdir.formats.errors import HookFailed, SessionStateError, UsageError
from agentsdir.formats.store.agent import read_agent, write_agent
from agentsdir.formats.store.log import read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agentsdir.engine.services import Services
    from agentsdir.formats.store.layout import AgentPaths
    from agentsdir.formats.store.log import Position, Record
    from agentsdir.formats.store.state import AgentState

OUTGOING = "outgoing"
"""The name of the hook in `hook.failed` records."""
_ADDRESS = ("connector", "userId", "channelId")
_FIELDS = ("message_id", "connector", "userId", "channelId", "text", "in_reply_to")


class Undelivered(NamedTuple):
    """A text that waits: the data of its `outgoing` record, and its time."""

    agent_id: str
    ts: str
    data: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return one line of `outbox --json`."""
        return {
            "type": "outgoing",
            "agentId": self.agent_id,
            "ts": self.ts,
            **{name: self.data.get(name) for name in _FIELDS},
        }


class DeliveryResult(NamedTuple):
    """The ids of the texts that were delivered, and the error that stopped the delivery.

    `no_hook` is whether there is no hook.
    """

    state: AgentState
    taken: tuple[str, ...] = ()
    failed: HookFailed | None = None
    no_hook: bool = False


def undelivered(
    paths: AgentPaths, message_ids: Iterable[str], since: Position | None = None
) -> Iterator[Undelivered]:
    """Yield the texts of an agent that wait, in log order; no log is read beyond the last of them.

    Args:
        message_ids: the ids of these texts.
        since: a point in the log that all of them come after; its start if not given.
    """
    due = set(message_ids)
    for record in read_records(paths.log, since) if due else ():
        message = record.data.get("message_id")
        if record.event == "outgoing" and isinstance(message, str) and message in due:
            yield Undelivered(paths.id, record.ts, record.data)
            due.remove(message)
            if not due:
                return


class UntriedTexts:
    """The texts of a log that were not offered to a hook, taken record by record."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def take(self, record: Record) -> None:
        """Take the next record of the log."""
        data = record.data
        if record.event == "hook.failed" and data.get("hook") == OUTGOING:
            self._ids.clear()
        elif isinstance(message := data.get("message_id"), str):
            if record.event == "outgoing":
                self._ids.add(message)
            elif record.event == "outgoing.delivered":
                self._ids.discard(message)

    def is_waiting(self, state: AgentState) -> bool:
        """Return whether one of them waits, as after a crash; `state` is the fold of the log."""
        return not self._ids.isdisjoint(state.undelivered)


def deliver_waiting(
    services: Services, paths: AgentPaths, state: AgentState, since: Position | None = None
) -> DeliveryResult:
    """Deliver the texts that wait to the hook of the connectors, one after the other.

    The caller holds the agent's `.turn`. The first text that is refused ends it. `mark_delivered`
    needs no `.turn`, so each text is checked under `.lock` before its hook runs and before the
    outcome is recorded.

    Args:
        state: one to read on from.
        since: as in `undelivered`.

    Raises what `read_agent` and `write_agent` raise.
    """
    taken: list[str] = []
    state = read_agent(paths, known=state).state
    for one in undelivered(paths, state.undelivered, since):
        message_id = one.data["message_id"]
        state = _current(services, paths, state)
        if message_id not in state.undelivered:
            continue
        document = {name: one.data.get(name) for name in _FIELDS}
        # The address comes from the descriptor: a log from a bundle must not choose it.
        document |= {name: state.descriptor.get(name) for name in _ADDRESS}
        whose = {"agent_id": paths.id, "session_id": state.session.id, "name": state.name}
        try:
            if not services.deliver_text({**whose, **document}):
                return DeliveryResult(state, tuple(taken), no_hook=True)
        except HookFailed as failed:
            said = jsontext.clean({"hook": failed.hook, "message": failed.message}, set())
            state, waits = _record(services, paths, state, message_id, "hook.failed", said)
            if not waits:
                continue
            services.notify_user(f"{failed.message}; it waits in the outbox of {paths.id}")
            return DeliveryResult(state, tuple(taken), failed)
        delivered = {"message_id": message_id}
        state, _ = _record(services, paths, state, message_id, "outgoing.delivered", delivered)
        taken.append(message_id)
    return DeliveryResult(state, tuple(taken))


def _current(services: Services, paths: AgentPaths, state: AgentState) -> AgentState:
    with write_agent(paths, disk=services.disk, known=state) as writer:
        return writer.state


def _record(
    services: Services,
    paths: AgentPaths,
    state: AgentState,
    message_id: str,
    event: str,
    data: dict[str, Any],
) -> tuple[AgentState, bool]:
    """Append the outcome of a text if it still waits; return the state, and whether it did."""
    with write_agent(paths, disk=services.disk, known=state) as writer:
        waits = message_id in writer.state.undelivered
        if waits:
            with suppress(SessionStateError):  # the log of a closed agent takes no hook.failed
                writer.append(event, data, services.now())
        return writer.state, waits


def deliver(services: Services, paths: AgentPaths, *, wait: float = 0) -> DeliveryResult:
    """Deliver an agent's texts outside a turn, after a crashed turn is ended.

    Raises `Busy` while a turn runs: its process delivers them at its end.
    """
    with hold_turn(paths, wait=wait), services.disk.synced_at_end():
        return deliver_waiting(services, paths, close_crashed_turn(services, paths))


def mark_delivered(services: Services, paths: AgentPaths, *message_ids: str) -> AgentState:
    """Record that texts were delivered by other means; nothing for one that was delivered before.

    Raises `UsageError` (kind ``no-such-message``), and records nothing, if an id is no text of
    this agent.
    """
    with services.disk.synced_at_end(), write_agent(paths, disk=services.disk) as writer:
        for message_id in message_ids:
            if message_id not in writer.state.undelivered and not _was_outgoing(paths, message_id):
                raise UsageError(
                    f"agent {paths.id} has no outgoing text {message_id!r}", kind="no-such-message"
                )
        for message_id in message_ids:
            if message_id in writer.state.undelivered:
                writer.append("outgoing.delivered", {"message_id": message_id}, services.now())
        return writer.state


def mark_all_delivered(services: Services, paths: AgentPaths) -> int:
    """Record that all waiting texts of an agent were delivered; return their number."""
    with services.disk.synced_at_end(), write_agent(paths, disk=services.disk) as writer:
        waiting = list(writer.state.undelivered)
        for message_id in waiting:
            writer.append("outgoing.delivered", {"message_id": message_id}, services.now())
    return len(waiting)


def _was_outgoing(paths: AgentPaths, message_id: str) -> bool:
    return any(
        record.event == "outgoing" and record.data.get("message_id") == message_id
        for record in read_records(paths.log)
    )
