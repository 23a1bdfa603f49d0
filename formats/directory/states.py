"""The session record and its state machine (seed session-model).

created → active → suspended → active …; active, suspended and created may be terminated. The
last start is ours: a session that never ran can be given up too.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from agentsdir.formats.directory.log import Position
from agentsdir.formats.errors import SessionStateError
from agentsdir.formats.reading.usage import no_usage

COUNTERS = ("turns", "failedTurns", "messages", "blocks")


class SessionState(StrEnum):
    """The durable state of a session."""

    CREATED = "created"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    TERMINATED = "terminated"


TRANSITIONS: dict[SessionState, tuple[SessionState, ...]] = {
    SessionState.CREATED: (SessionState.ACTIVE, SessionState.TERMINATED),
    SessionState.ACTIVE: (SessionState.SUSPENDED, SessionState.TERMINATED),
    SessionState.SUSPENDED: (SessionState.ACTIVE, SessionState.TERMINATED),
    SessionState.TERMINATED: (),
}


def check_transition(old: SessionState, new: SessionState, agent: str = "") -> None:
    """Raise `SessionStateError`, naming both states, unless `old` may become `new`."""
    if new not in TRANSITIONS[old]:
        whose = f"agent {agent}: " if agent else ""
        hint = "it was closed for good" if old is SessionState.TERMINATED else None
        raise SessionStateError(
            f"{whose}the session is {old}, and cannot become {new}"
            if old is not new
            else f"{whose}the session is {old} already",
            hint=hint,
        )


class Changing:
    """What changes as a log is read; compared and copied by its fields."""

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self), **changes)
        return copy

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({said})"


class Session(Changing):
    """One provider instance of one agent, as session.json holds it.

    `id` is a uuid in 32 hex digits; times are RFC 3339. `provider_state` is the blob of the last
    suspension, and empty unless the session is suspended: a blob older than the last turn would
    be wrong, and it is only ever a short cut (decision D23).
    """

    def __init__(
        self,
        id: str,  # noqa: A002, the field's name
        state: SessionState = SessionState.CREATED,
        provider_name: str = "",
        model: str = "",
        created_at: str = "",
        suspended_at: str | None = None,
        provider_state: bytes = b"",
    ) -> None:
        self.id = id
        self.state = state
        self.provider_name = provider_name
        self.model = model
        self.created_at = created_at
        self.suspended_at = suspended_at
        self.provider_state = provider_state


class AgentState(Changing):
    """One agent as of `position` in its log.

    `pending` are messages no turn has taken yet, in log order; `open_turn` is a turn without an
    end, or with messages whose delivery is not yet recorded. `transcripts` are entries by path;
    each belongs to the native session that was in force when it was synced. `cost` is the sum in
    US dollars of what clients said, None where none said anything. `last_input` is when the last
    message came that was no notice; `children` are spawned agents that have not ended, by id;
    `undelivered` are the ids of outgoing texts that no connector has taken. `missed` is whether the
    native session in force may not have been told of turns that another one ran. `imported` is
    whether what the log says comes from a bundle, in part at least. `unsent` are messages that
    could not be put into another agent's inbox, by id: `to` whom, and what its `message` says.
    """

    def __init__(
        self,
        *,
        agent_id: str,
        session: Session,
        architecture: str,
        descriptor: dict[str, Any],
        native: dict[str, Any],
        name: str | None = None,
        profile: str = "",
        cwd: str = "",
        title: str | None = None,
        last_activity: str | None = None,
        pending: list[dict[str, Any]] | None = None,
        open_turn: dict[str, Any] | None = None,
        transcripts: dict[str, dict[str, Any]] | None = None,
        counters: dict[str, int] | None = None,
        usage: dict[str, Any] | None = None,
        cost: float | None = None,
        last_input: str | None = None,
        children: dict[str, dict[str, Any]] | None = None,
        undelivered: list[str] | None = None,
        tags: list[str] | None = None,
        limits: dict[str, Any] | None = None,
        fallbacks: list[str] | None = None,
        ephemeral: bool = False,
        missed: bool = False,
        imported: bool = False,
        unsent: dict[str, dict[str, Any]] | None = None,
        position: Position | None = None,
        history_size: int = 0,
    ) -> None:
        self.agent_id = agent_id
        self.session = session
        self.architecture = architecture
        self.descriptor = descriptor
        self.native = native
        self.name = name
        self.profile = profile
        self.cwd = cwd
        self.title = title
        self.last_activity = last_activity
        self.pending = [] if pending is None else pending
        self.open_turn = open_turn
        self.transcripts = {} if transcripts is None else transcripts
        self.counters = dict.fromkeys(COUNTERS, 0) if counters is None else counters
        self.usage = no_usage() if usage is None else usage
        self.cost = cost
        self.last_input = last_input
        self.children = {} if children is None else children
        self.undelivered = [] if undelivered is None else undelivered
        self.tags = [] if tags is None else tags
        self.limits = {} if limits is None else limits
        self.fallbacks = [] if fallbacks is None else fallbacks
        self.ephemeral = ephemeral
        self.missed = missed
        self.imported = imported
        self.unsent = {} if unsent is None else unsent
        self.position = Position() if position is None else position
        self.history_size = history_size

    @property
    def parent(self) -> str | None:
        """The parent agent of a subagent."""
        parent = self.descriptor.get("parentAgentId")
        return parent if isinstance(parent, str) else None
