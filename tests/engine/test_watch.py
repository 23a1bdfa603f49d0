"""Agents that are looked at again: what is read, in which order they stand, what a bell is for."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentsdir.engine.listing import Wanted
from agentsdir.engine.watch import WatchedAgents
from agentsdir.formats.store import locks
from agentsdir.formats.store.locks import OpenQuestion, Started, TurnNote, write_note
from agentsdir.formats.times import to_text

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each file that is opened from now on."""
    names: list[str] = []
    really = os.open

    def noting(path: Any, *rest: Any, **named: Any) -> int:
        names.append(os.fspath(path).rsplit("/", 1)[-1])
        return really(path, *rest, **named)

    monkeypatch.setattr(os, "open", noting)
    return names


def test_only_what_changed_is_read_again(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all others it is asked whether a turn runs."""
    agents = [stage.new() for _ in range(4)]
    stage.send(agents[0])
    watch = WatchedAgents(stage.services.layout, Wanted())
    assert len(watch.look(NOW).agents) == 4
    names = opened(monkeypatch)
    assert len(watch.look(NOW).agents) == 4
    assert set(names) <= {".turn"}
    stage.send(agents[2], "again")
    del names[:]
    look = watch.look(NOW)
    assert look.agents[0].agent_id == agents[2].id
    assert names.count("state.json") == 1
    assert [row["title"] for row in watch.rows(look.agents[:1])] == ["again"]
    del names[:]
    assert len(watch.rows(watch.look(NOW).agents[:1])) == 1
    assert set(names) <= {".turn"}


def test_who_waits_comes_first_then_who_works(stage: Any) -> None:
    """A question that is open for less than a second rings no bell: a hook may answer it."""
    first, second, third = sorted((stage.new() for _ in range(3)), key=lambda paths: paths.id)
    watch = WatchedAgents(stage.services.layout, Wanted())
    watch.look(NOW)
    note = TurnNote("t" * 24, Started(2, 1), Started(2, 1))
    with locks.hold(second.turn), locks.hold(third.turn) as held:
        write_note(held, note._replace(question=OpenQuestion("Bash", to_text(NOW))))
        young = watch.look(NOW + timedelta(seconds=0.5))
        assert [one.state for one in young.agents] == ["running", "running", "created"]
        assert young.began_to_wait == 0
        old = watch.look(NOW + timedelta(seconds=1.5))
        assert [one.agent_id for one in old.agents] == [third.id, second.id, first.id]
        assert [one.state for one in old.agents] == ["waiting", "running", "created"]
        assert (old.began_to_wait, old.finished) == (1, 0)
        again = watch.look(NOW + timedelta(seconds=2.5))
        assert (again.began_to_wait, again.finished) == (0, 0)
    done = watch.look(NOW + timedelta(seconds=3.5))
    assert (done.began_to_wait, done.finished) == (0, 2)
    assert {one.state for one in done.agents} == {"created"}


def test_agents_come_and_go(stage: Any) -> None:
    """One that cannot be read is shown as such; one that is not wanted rings no bell."""
    watch = WatchedAgents(stage.services.layout, Wanted())
    assert watch.look(NOW).agents == []
    paths, other = stage.new(name="fox"), stage.new()
    assert len(watch.look(NOW).agents) == 2
    other.log.unlink()
    other.state.unlink()
    assert [one.state for one in watch.look(NOW).agents] == ["created", "unreadable"]
    tagged = WatchedAgents(stage.services.layout, Wanted(tags=frozenset("x")))
    tagged.look(NOW)
    with locks.hold(paths.turn):
        assert tagged.look(NOW).agents == []
    assert tagged.look(NOW).finished == 0
