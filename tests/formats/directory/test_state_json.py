"""What an agent's state is made of, all of it in state.json."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.formats.blocks import usage
from agentsdir.formats.store.log import Position
from agentsdir.formats.store.state import (
    COUNTERS,
    HEAD,
    AgentState,
    Inbox,
    Run,
    SessionRecord,
    SessionState,
    Waiting,
    pending_count,
)

MESSAGE = {"messageId": "m", "sender": "cli", "kind": "user", "content": [{"type": "text"}]}
INBOX = [
    Waiting({**MESSAGE, "messageId": f"m{number}"}, number, 100 * number)
    for number in (*range(1, HEAD + 3), HEAD + 4)  # one was taken out of its turn
]
TURN = {
    "turnId": "t", "messageIds": ["m"], "ended": None, "aborted": False,
    "deferred": [{"child": "c", "name": "kid"}, {"to": "a", "messageId": "n"}],
}  # fmt: skip
TIME = "2026-01-02T03:04:05Z"
SESSION = SessionRecord("0" * 32, SessionState.SUSPENDED, "echo", "small", TIME, TIME)
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
    "pending": Inbox(INBOX),
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
    "settings": {"systemPrompt": "Be brief."},
    "budget": {"turns": 5},
    "unsent": {"u": {"to": "a", "message": {"message_id": "u", "content": []}}},
    "props": {"query": "quantum"},
    "com_state": {"step": 2},
    "data_cache": {"page": {"rows": []}},
    "runner": "repl",
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

    assert AgentState.from_json(state.to_json(), read_run) == state
    blob = replace(state, session=replace(SESSION, provider_state=b"blob"))
    assert AgentState.from_json(blob.to_json(), read_run) == state


def read_run(run: Run) -> list[Waiting]:
    """Return what the log has of the inbox."""
    return [one for one in INBOX if run.first <= one.number < run.first + run.messages]


def test_a_state_json_holds_the_first_messages_and_says_where_the_others_are() -> None:
    """They are counted without being read, and one more is added without reading them."""
    document = AgentState(**FULL).to_json()
    assert [one["messageId"] for one in document["pending"]] == ["m1", "m2", "m3", "m4"]
    assert document["pendingMore"] == [
        {"first": 5, "messages": 2, "offset": 500},
        {"first": 8, "messages": 1, "offset": 800},
    ]
    assert pending_count(document) == len(INBOX)

    def refuse(_run: Run) -> list[Waiting]:
        raise AssertionError("the log was read")

    inbox = AgentState.from_json(document, refuse).pending
    inbox.append({**MESSAGE, "messageId": "next"}, 9, 900)
    inbox.append({**MESSAGE, "messageId": "later"}, 11, 1100)
    assert (len(inbox), inbox[0]["messageId"]) == (len(INBOX) + 2, "m1")
    assert inbox.more == [
        {"first": 5, "messages": 2, "offset": 500},
        {"first": 8, "messages": 2, "offset": 800},
        {"first": 11, "messages": 1, "offset": 1100},
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"pending": [MESSAGE]},
        {"pending": [MESSAGE] * (HEAD + 1)},
        {"pendingMore": [{"first": 5, "messages": 0, "offset": 500}]},
        {"pendingMore": [{"first": 5, "messages": -1, "offset": 500}]},
        {"pendingMore": [{"first": 5, "messages": 1, "offset": 500, "x": 1}]},
        {"pendingMore": [{"first": 5, "messages": 1}]},
        {"pendingMore": {"first": 5}},
        {"pendingMore": [], "pending": [MESSAGE] * (HEAD + 1)},
    ],
)
def test_an_inbox_that_no_writer_writes_is_refused(change: dict[str, Any]) -> None:
    """A digest can be made for any document."""
    document = {**AgentState(**FULL).to_json(), **change}
    with pytest.raises((KeyError, TypeError, ValueError)):
        AgentState.from_json(document, read_run)


@given(
    st.lists(st.sampled_from("abcdef"), max_size=12),
    st.lists(st.lists(st.sampled_from("abcdefg"), max_size=3) | st.sampled_from("abc"), max_size=8),
)
def test_an_inbox_is_a_list_that_is_not_searched(ids: list[str], steps: list[Any]) -> None:
    """It holds what a list does from which messages are taken one by one, an id twice or not."""
    log = [Waiting({"messageId": one, "n": at}, at + 1, at) for at, one in enumerate(ids)]
    inbox = Inbox(log)
    wanted = list(inbox)
    for step in steps:
        before, held = inbox, list(inbox)
        if isinstance(step, list):
            inbox = inbox.without(step)
            wanted = [message for message in wanted if message["messageId"] not in step]
            assert before == held
        else:
            log.append(Waiting({"messageId": step, "n": len(log)}, len(log) + 1, len(log)))
            inbox.append(*log[-1])
            wanted.append(log[-1].message)
        # What state.json holds, and what then is read from the log, is the same inbox.
        saved = Inbox(
            map(Waiting, inbox.head),
            (Run(**run) for run in inbox.more),
            lambda run: log[run.offset : run.offset + run.messages],
        )
        assert len(saved) == len(wanted)
        assert bool(saved) == bool(wanted)
        assert saved.more == inbox.more
        for one in (inbox, saved):
            assert one == wanted
            assert one[:3] == wanted[:3]
            assert [one.has(name) for name in "abcdefg"] == [
                any(message["messageId"] == name for message in wanted) for name in "abcdefg"
            ]
        inbox = saved
