"""The session record and its state machine (seed session-model).

created → active → suspended → active …; active, suspended and created may be terminated. The
last start is ours: a session that never ran can be given up too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentsdir.formats.errors import SessionStateError


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
        raise SessionStateError(f"{whose}a session cannot go {old} → {new}", hint=hint)


@dataclass(slots=True)
class Session:
    """One provider instance of one agent, as session.json holds it.

    `id` is a uuid in 32 hex digits; times are RFC 3339. `provider_state` is the blob of the last
    suspension, and empty unless the session is suspended: a blob older than the last turn would
    be wrong, and it is only ever a short cut (decision D23).
    """

    id: str
    state: SessionState = SessionState.CREATED
    provider_name: str = ""
    model: str = ""
    created_at: str = ""
    suspended_at: str | None = None
    provider_state: bytes = b""
