"""What an agent's state is made of, all of it in state.json."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.blocks import usage
from agentsdir.formats.store.log import Position
from agentsdir.formats.store.state import COUNTERS, AgentState, Inbox, Session, SessionState

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
        if not each.compare:  # what only the fold that goes on knows
            continue
        value = getattr(state if hasattr(state, each.name) else state.session, each.name)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        assert each.name == "provider_state" or value != default, each.name

    assert AgentState.from_json(state.to_json()) == state
    blob = replace(state, session=replace(SESSION, provider_state=b"blob"))
    assert AgentState.from_json(blob.to_json()) == state


@given(
    st.lists(st.sampled_from("abcdef"), max_size=12),
    st.lists(st.lists(st.sampled_from("abcdefg"), max_size=3) | st.sampled_from("abc"), max_size=8),
)
def test_an_inbox_is_a_list_that_is_not_searched(ids: list[str], steps: list[Any]) -> None:
    """It holds what a list does from which messages are taken one by one, an id twice or not."""
    inbox = Inbox({"messageId": one, "n": at} for at, one in enumerate(ids))
    wanted = list(inbox)
    for at, step in enumerate(steps):
        before, held = inbox, list(inbox)
        if isinstance(step, list):
            inbox = inbox.without(step)
            wanted = [message for message in wanted if message["messageId"] not in step]
            assert before == held
        else:
            message = {"messageId": step, "n": len(ids) + at}
            inbox.append(message)
            wanted.append(message)
        assert inbox == wanted
        assert [inbox.has(one) for one in "abcdefg"] == [
            any(message["messageId"] == one for message in wanted) for one in "abcdefg"
        ]
