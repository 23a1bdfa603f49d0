"""What an agent's state is made of, all of it in state.json."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any

from agentsdir.formats.blocks import usage
from agentsdir.formats.store.log import Position
from agentsdir.formats.store.state import COUNTERS, AgentState, Session, SessionState

MESSAGE = {"messageId": "m", "sender": "cli", "kind": "user", "content": [{"type": "text"}]}
TURN = {
    "turnId": "t", "messageIds": ["m"], "ended": None, "aborted": False,
    "deferred": [{"child": "c", "name": "kid"}, {"to": "a", "messageId": "n"}],
}  # fmt: skip
TIME = "2026-01-02T03:04:05Z"
SESSION = Session("0" * 32, SessionState.SUSPENDED, "echo", "small", TIME, TIME)
FULL: dict[str, Any] = {
    "agent_id": "a" * 24,
    "session": SESSION,
    "architecture": "echo",
    "descriptor": {"type": "heartbeat"},
    "native": {"id": "n"},
    "name": "me",
    "profile": "p",
    "cwd": "/w",
    "title": "first words",
    "last_activity": TIME,
    "pending": [MESSAGE],
    "open_turn": TURN,
    "transcripts": {"main.jsonl": {"role": "main", "size": 1}},
    "counters": dict.fromkeys(COUNTERS, 2),
    "usage": usage(1, 2),
    "cost": 0.5,
    "last_input": TIME,
    "children": {"c": {"name": "kid", "status": "running"}},
    "undelivered": ["o"],
    "tags": ["urgent"],
    "limits": {"max_ticks": 3},
    "fallbacks": ["script"],
    "ephemeral": True,
    "missed": True,
    "imported": True,
    "unsent": {"u": {"to": "a", "message": {"message_id": "u", "content": []}}},
    "position": Position(5, 4, "f" * 16, 1, 6),
    "history_size": 7,
}


def test_every_field_of_a_state_comes_back_from_state_json() -> None:
    """But the provider's blob, which session.json has; a new field has to be added here."""
    state = AgentState(**FULL)
    for each in (*fields(state), *fields(state.session)):
        value = getattr(state if hasattr(state, each.name) else state.session, each.name)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        assert each.name == "provider_state" or value != default, each.name

    assert AgentState.from_json(state.to_json()) == state
    blob = replace(state, session=replace(SESSION, provider_state=b"blob"))
    assert AgentState.from_json(blob.to_json()) == state
