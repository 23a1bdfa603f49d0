"""A session that was read costs no memory any more, whatever else is read after it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentsdir.engine.parse import (
    FoundSession,
    find_sessions,
    parse_all,
    parse_session,
    session_name,
    walk,
)
from agentsdir.engine.parse_report import ParseReport
from agentsdir.formats.sink import ParseSink

FIXTURES = Path(__file__).parents[2] / "fixtures"


def sessions_of(client: str) -> list[FoundSession]:
    """Return all sessions of the fixtures of a client."""
    sources = walk(FIXTURES / client, client, lambda _: None)
    return find_sessions(sources, client, lambda _: None)


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """Collect no cycles: only what nothing refers to is freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("client", ["claude", "gemini"])
def test_a_session_is_freed_with_its_sink(client: str) -> None:
    """No reader leaves a cycle that would hold its blocks until cycles are collected."""
    kept = []
    for found in sessions_of(client):
        sink = parse_session(found, hidden=True)
        assert list(sink.pieces("all"))
        still_there = weakref.ref(sink)
        del sink
        if still_there() is not None:
            kept.append(session_name(found))
    assert kept == []


@pytest.mark.usefixtures("_uncollected")
def test_of_many_sessions_one_is_in_memory() -> None:
    """When the blocks of a session are given out, those of the one before are freed."""
    found = sessions_of("claude") + sessions_of("gemini")
    for _ in parse_all(found, ParseReport(), hidden=True):
        assert sum(isinstance(one, ParseSink) for one in gc.get_objects()) == 1
    assert len(found) > 50
