"""Which agents a list shows, in which order, and which part of an id names one."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.engine.listing import Listing, Wanted, last_change, short_length, state_of
from agentsdir.engine.lookup import ListedAgent, document_row, each_agent
from agentsdir.formats.errors import Invalid
from agentsdir.formats.store import locks
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.formats.store.locks import OpenQuestion, Started, TurnNote, read_note, write_note

ALL = Wanted()
IDS = st.text("abc12", min_size=24, max_size=24).map(lambda text: "a" + text[1:])


def listing_of(
    documents: dict[str, dict[str, Any]], wanted: Wanted = ALL, *, tree: bool = False
) -> Listing:
    """Return the listing of agents that have these states."""
    listing = Listing(wanted, lambda row: row["agentId"], lambda _: None, tree=tree)
    for agent_id, document in sorted(documents.items()):
        listing.add(ListedAgent(AgentPaths("/nowhere/" + agent_id, agent_id), document, (), None))
    return listing


def state(parent: str | None = None, at: str = "2026-01-02T03:04:05.000000Z", **said: Any) -> Any:
    """Return as much of a state.json as a list needs."""
    fields = (
        "sessionId", "type", "agentProfileReference", "lastInput", "agentId", "name", "title",
        "suspendedAt", "provider", "model", "cwd", "counters", "usage", "costUsd",
    )  # fmt: skip
    return {
        **dict.fromkeys(fields), "createdAt": at, "lastActivity": None, "tags": [],
        "state": "active", "ephemeral": False, "pending": [],
        "descriptor": {"type": "subagent", "parentAgentId": parent} if parent else {"type": "user"},
        **said,
    }  # fmt: skip


def shown(listing: Listing) -> list[str]:
    """Return the ids in the order of the list."""
    return [entry.shown for entry in listing.newest_first()]


def test_the_agent_that_was_used_last_comes_first() -> None:
    """Used is its last turn, or its creation if that is later; equal ones are sorted by id."""
    documents = {
        "old": state(at="2026-01-01T00:00:00.000000Z", lastActivity="2026-01-05T00:00:00.000000Z"),
        "made": state(at="2026-01-06T00:00:00.000000Z"),
        "forked": state(
            at="2026-01-07T00:00:00.000000Z", lastActivity="2025-01-01T00:00:00.000000Z"
        ),
        "b-same": state(at="2026-01-02T00:00:00.000000Z"),
        "a-same": state(at="2026-01-02T00:00:00.000000Z"),
    }
    assert shown(listing_of(documents)) == ["forked", "made", "old", "a-same", "b-same"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T05:04:05+02:00", "2026-01-02T03:04:05.000000Z"),
        ("no time", ""),
        ("9999-12-31T23:59:59-23:00", ""),
    ],
)
def test_times_of_foreign_writers_are_compared_as_times(said: str, meant: str) -> None:
    """Not as texts; what is no time is older than all."""
    assert last_change({"createdAt": said, "lastActivity": None}) == meant
    assert last_change({"createdAt": said, "lastActivity": said}) == meant


def test_each_kind_of_filter_must_fit() -> None:
    """Of several states or providers one, of tags all."""
    documents = {
        "one": state(provider="claude", cwd="/w", tags=["a", "b"], state="suspended"),
        "two": state(provider="gemini", cwd="/w", tags=["a"]),
        "three": state(provider="echo", cwd="/v"),
    }

    def kept(**given: Any) -> set[str]:
        return set(shown(listing_of(documents, Wanted(**given))))

    assert kept(folder="/w") == {"one", "two"}
    assert kept(providers=frozenset(("claude", "echo"))) == {"one", "three"}
    assert kept(tags=frozenset("a")) == {"one", "two"}
    assert kept(tags=frozenset("ab")) == {"one"}
    assert kept(states=frozenset(("suspended",))) == {"one"}
    assert kept(states=frozenset(("idle",))) == {"one", "two", "three"}
    assert kept(folder="/w", providers=frozenset(("echo",))) == set()
    assert kept(since="2026-01-02T03:04:05.000000Z") == {"one", "two", "three"}
    assert kept(since="2026-01-02T03:04:05.000001Z") == set()


def test_closed_and_ephemeral_agents_are_shown_when_they_are_asked_for() -> None:
    """By `--all`, and closed ones by their state; how many closed ones are left out is known."""
    documents = {
        "live": state(),
        "ended": state(state="terminated"),
        "brief": state(ephemeral=True),
    }
    listing = listing_of(documents)
    assert (shown(listing), listing.hidden) == (["live"], 1)
    everyone = listing_of(documents, Wanted(everyone=True))
    assert (shown(everyone), everyone.hidden) == (["brief", "ended", "live"], 0)
    assert shown(listing_of(documents, Wanted(states=frozenset(("terminated",))))) == ["ended"]


def test_an_agent_that_cannot_be_read_comes_last_and_fits_no_filter() -> None:
    """It is reported in any case."""
    told: list[str] = []
    for wanted, expected in ((Wanted(), ["good", "bad"]), (Wanted(tags=frozenset("a")), [])):
        listing = Listing(wanted, lambda row: row["agentId"], lambda one: told.append(one.paths.id))
        bad = AgentPaths("/nowhere/bad", "bad")
        listing.add(ListedAgent(bad, None, (), Invalid("broken")))
        listing.add(ListedAgent(AgentPaths("/nowhere/good", "good"), state(), (), None))
        assert shown(listing) == expected
    assert told == ["bad", "bad"]


def test_a_tree_has_ended_children_and_each_agent_once() -> None:
    """Below its parent where that is shown; parents that go round hide none."""
    documents = {
        "top": state(at="2026-01-03T00:00:00.000000Z"),
        "kid1": state("top", at="2026-01-01T00:00:00.000000Z", state="terminated"),
        "kid2": state("top", at="2026-01-02T00:00:00.000000Z"),
        "low": state("kid1", state="terminated"),
        "orphan": state("gone", at="2025-01-01T00:00:00.000000Z"),
        "ring1": state("ring2", at="2024-01-01T00:00:00.000000Z"),
        "ring2": state("ring1", at="2024-01-02T00:00:00.000000Z"),
        "ended": state(state="terminated"),
    }
    tree = list(listing_of(documents, tree=True).as_tree())
    assert [(entry.shown, levels) for entry, levels in tree] == [
        ("top", ()),
        ("kid2", (True,)),
        ("kid1", (False,)),
        ("low", (False, False)),
        ("orphan", ()),
        ("ring2", ()),
        ("ring1", (False,)),
    ]


def test_a_long_chain_of_parents_is_shown_without_recursion() -> None:
    """A hostile directory may have one of any length."""
    documents = {f"a{n:05}": state(f"a{n - 1:05}" if n else None) for n in range(5000)}
    tree = list(listing_of(documents, tree=True).as_tree())
    assert len(tree) == 5000
    assert max(len(levels) for _, levels in tree) == 10


@given(st.sets(IDS, min_size=1, max_size=30), st.sets(st.text("abc12", max_size=30), max_size=20))
def test_a_short_id_names_one_agent(agent_ids: set[str], others: set[str]) -> None:
    """No other id, session id or name begins so, unless the whole id is shown."""
    length = short_length(agent_ids, others)
    assert 8 <= length <= 24
    if length < 24:
        for one in agent_ids:
            begun = [two for two in (*agent_ids, *others) if two.startswith(one[:length])]
            assert begun == [one]


def test_a_row_says_what_a_running_turn_waits_for(stage: Any) -> None:
    """As `.turn` has it, and only while a process holds that."""
    paths = stage.new()
    note = TurnNote("t" * 24, Started(2, 1), Started(2, 1), OpenQuestion("Bash", "2026-01-02T00Z"))

    def row() -> Any:
        (listed,) = each_agent(stage.services.layout)
        return document_row(listed.paths, listed.document or {})

    assert (row()["question"], state_of(row())) == (None, "created")
    with locks.hold(paths.turn) as held:
        write_note(held, note)
        assert row()["question"] == {"toolName": "Bash", "at": "2026-01-02T00Z"}
        assert state_of(row()) == "waiting"
        write_note(held, note._replace(question=None))
        assert (row()["question"], state_of(row())) == (None, "running")
        write_note(held, note)
    assert (row()["question"], state_of(row())) == (None, "created")


def test_a_note_that_gets_shorter_is_never_half_a_note(stage: Any, monkeypatch: Any) -> None:
    """A process that is killed between the two steps leaves the new one, with spaces behind it."""
    paths = stage.new()
    long = TurnNote("t" * 24, Started(2, 1), Started(2, 1), OpenQuestion("B" * 200, "now"))
    short = long._replace(question=None)
    with locks.hold(paths.turn) as held:
        write_note(held, long)
        assert read_note(paths) == long
        monkeypatch.setattr(os, "ftruncate", lambda *_: None)
        write_note(held, short)
        assert read_note(paths) == short
