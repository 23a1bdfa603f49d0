"""The timeline of a session as a program reads and edits it, and what a model gets of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsdir import AgentConfig, App, Invalid, ModelRequest, model_provider
from agentsdir.adapters import registry
from agentsdir.engine.session_data import runtime_session
from agentsdir.formats.jsontext import LongList
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import read_records


def count_entries(request: ModelRequest) -> str:
    """Answer with how many blocks the model is given."""
    return str(len(request.timeline()))


@pytest.fixture
def counting() -> Iterator[Any]:
    """Return a provider whose model counts its context."""
    yield model_provider("counting", count_entries)
    registry.unregister("counting")


@pytest.mark.feature("A-12")
def test_a_limit_trims_memory_and_the_context_but_never_the_log(
    tmp_path: Path, counting: Any
) -> None:
    """The model gets three blocks at most; the log and the history have all."""
    agent = AgentConfig(provider=counting)
    with App(agent, root=tmp_path, max_timeline_entries=3) as app:
        session = app.session()
        answers = [session.send("hello").result.response for _ in range(4)]

        assert answers == ["1", "3", "3", "3"]
        assert len(session.timeline.entries) == 3
        assert len(session.timeline.history) == 8


@pytest.mark.feature("A-13")
def test_an_edit_changes_what_the_model_is_given_and_rewrites_nothing(
    tmp_path: Path, counting: Any
) -> None:
    """The history is as it was, the log only longer, and another process sees the edit."""
    with App(AgentConfig(provider=counting), root=tmp_path) as app:
        session = app.session("user-123")
        session.send("one").wait()
        session.send("two").wait()
        before = session.paths.log.read_bytes()

        session.timeline.update(lambda entries: entries[-1:])

        assert session.paths.log.read_bytes().startswith(before)
        assert session.send("three").result.response == "2"
        assert len(session.timeline.history) == 6
    with App(AgentConfig(provider=counting), root=tmp_path) as app:
        assert [one["content"] for one in app.session("user-123").timeline.entries] == [
            "3",
            "three",
            "2",
        ]


@pytest.mark.feature("A-13")
def test_a_selection_has_the_newest_blocks_of_the_roles(tmp_path: Path, counting: Any) -> None:
    """Limits and roles go together; what is returned are copies."""
    with App(AgentConfig(provider=counting), root=tmp_path) as app:
        session = app.session()
        for text in ("one", "two", "three"):
            session.send(text).wait()

        asked = session.timeline(roles=["user"], limit=2)
        asked[0]["content"] = "changed"

        assert [one["content"] for one in session.timeline(roles=["user"])] == [
            "one",
            "two",
            "three",
        ]
        assert session.timeline(max_tokens=0) == []


def test_runtime_data_of_a_provider_that_is_not_here_has_its_sources(tmp_path: Path) -> None:
    """The transcript says itself what it is, so that a command can show a program's session."""
    with App(AgentConfig(provider=model_provider("gone", count_entries)), root=tmp_path) as app:
        session = app.session()
        session.send("hello").wait()
        paths = session.paths
    registry.unregister("gone")

    document = runtime_session(Layout(tmp_path), paths, read_agent(paths).state)

    blocks = document["blocks"]
    assert isinstance(blocks, LongList)
    places = [json.loads(line)["source"] for line in blocks.lines()]
    assert [place["line"] for place in places] == [1, 4]


def test_a_provider_that_heeds_no_system_prompt_takes_a_component_that_changes_it(
    tmp_path: Path,
) -> None:
    """As at the creation: what `echo` does not heed makes no difference, and no record."""

    def greeter(mood: str = "calm") -> AgentConfig:
        return AgentConfig(provider="echo", system=f"You are {mood}.")

    with App(greeter, root=tmp_path) as app:
        session = app.session()
        assert session.send("hello").result.response == "hello"
        session.render({"mood": "glad"}).wait()

        events = [record.event for record in read_records(session.paths.log)]
        assert ("props.set" in events, "agent.set" in events) == (True, False)


@pytest.mark.parametrize("wanted", [None, "a summary", ["a summary"], {"type": "system"}])
def test_what_is_no_list_of_blocks_is_refused_and_changes_nothing(
    tmp_path: Path, wanted: Any
) -> None:
    """A function that changes the list that it was given, and returns none, has forgotten it."""
    with App(AgentConfig(provider="echo"), root=tmp_path) as app:
        session = app.session()
        session.send("hello").wait()
        before = session.timeline.entries

        with pytest.raises(Invalid, match="a timeline is a list of blocks") as refused:
            session.timeline.update(lambda _: wanted)
        assert refused.value.kind == "bad-block"
        assert session.timeline.entries == before
