"""`AgentSystem`: agents are restored, found by strategy, and sent messages, through one object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import orjson
import pytest

from agentsdir import (
    AgentConfig,
    AgentsdirError,
    AgentSession,
    AgentSystem,
    App,
    Callbacks,
    Execution,
    ModelRequest,
    ToolCall,
    ToolContext,
    TurnScheduler,
    model_provider,
    tool,
)
from agentsdir.adapters import registry
from agentsdir.formats.errors import NoSuchAgent, SessionStateError, UsageError

pytestmark = pytest.mark.feature("G-07")

ECHO = AgentConfig(provider="echo", system="You are terse.")
PERSON = {"type": "user", "connector": "telegram", "userId": "1", "channelId": "2"}


@contextmanager
def bot(call: Callable[[ModelRequest], Any]) -> Iterator[None]:
    """Have a provider `bot` whose model is a function."""
    registry.register(model_provider("bot", call))
    try:
        yield
    finally:
        registry.unregister("bot")


def records(session: Any) -> list[dict[str, Any]]:
    """Return the log of a session."""
    return [orjson.loads(line) for line in session.paths.log.read_bytes().splitlines()]


def contents(session: Any) -> list[str]:
    """Return the texts of the messages of a session, in the order of its inbox."""
    return [
        record["data"]["content"][0]["text"]
        for record in records(session)
        if record["event"] == "message.enqueued"
    ]


@pytest.mark.feature("T-03")
def test_a_message_of_a_person_finds_the_agent_of_the_conversation(tmp_path: Path) -> None:
    """The first one makes it, with the system's configuration; in another process it is found."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        first = system.post(PERSON, "hello")
        assert first.result.response == "hello"

    with AgentSystem(ECHO, root=tmp_path) as system:
        again = system.post(PERSON, "more")
        other = system.post({**PERSON, "channelId": "3"}, "elsewhere")
        assert again.session.id == first.session.id != other.session.id

    created = records(again.session)[0]["data"]
    assert created["descriptor"] == PERSON
    assert created["system_prompt"] == ECHO.system


@pytest.mark.feature("G-06")
def test_messages_are_on_disk_when_post_returns_and_run_in_their_order(tmp_path: Path) -> None:
    """A connector may acknowledge a message as soon as the call is over."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        posted = []
        for number in range(10):
            posted.append(system.post(PERSON, f"number {number}"))
            assert contents(posted[0].session) == [f"number {one}" for one in range(number + 1)]
        for execution in posted:
            execution.wait()
        started = [r["data"] for r in records(posted[0].session) if r["event"] == "turn.start"]

    assert [one["message_ids"] for one in started] == [[one.message_id] for one in posted]


@pytest.mark.feature("G-06")
def test_post_returns_while_the_turn_runs(tmp_path: Path) -> None:
    """A program that takes messages of people is not held up by a model, nor by a full inbox."""
    may_answer = Event()

    def call(request: ModelRequest) -> str:
        assert may_answer.wait(60)
        return "at last"

    with bot(call), AgentSystem(AgentConfig(provider="bot"), root=tmp_path) as system:
        try:
            posted = [system.post(PERSON, text) for text in ("one", "two")]
            assert [execution.is_done for execution in posted] == [False, False]
            assert contents(posted[0].session) == ["one", "two"]
        finally:
            may_answer.set()
        assert [execution.result.response for execution in posted] == ["at last"] * 2


def test_a_tool_of_one_agent_posts_to_another(tmp_path: Path) -> None:
    """A subagent asks who is in the foreground, and sends a system message there."""
    answers: list[Execution] = []

    @tool
    def notify(text: str, context: ToolContext) -> str:
        """Tell the person."""
        foreground = system.agent_for("most-recent-foreground")
        answers.append(system.post(foreground, text, sender=context.agent_id))
        return "posted"

    def call(request: ModelRequest) -> Any:
        if request.results or "system_message" in str(request.content):
            return "done"
        return [ToolCall("notify", {"text": "the report is there"})] if request.tools else "hello"

    agent = AgentConfig(provider="bot", tools=[notify])
    with bot(call), AgentSystem(agent, root=tmp_path) as system:
        person = system.post(PERSON, "hello")
        assert person.result.response == "done"
        task = system.post({"type": "cron", "id": "nightly"}, "report")
        assert task.result.tools_used == {"notify": 1}
        assert [one.result.response for one in answers] == ["done", "done"]

    senders = [one.session.id for one in (person, task)]
    assert contents(person.session) == ["hello", *["the report is there"] * 2]
    queued = [r["data"] for r in records(person.session) if r["event"] == "message.enqueued"]
    assert [one["sender"] for one in queued] == ["cli", *senders]


@pytest.mark.feature("T-11")
def test_a_task_and_the_heartbeat_have_one_agent_each(tmp_path: Path) -> None:
    """Neither is foreground."""
    nightly, beat = {"type": "cron", "id": "nightly"}, {"type": "heartbeat"}
    with AgentSystem(ECHO, root=tmp_path) as system:
        twice = {system.post(nightly, "report").session.id for _ in range(2)}
        beats = {system.post(beat, "batch").session.id for _ in range(2)}
        assert (len(twice), len(beats)) == (1, 1)

        assert {system.agent_for("heartbeat")} == beats
        with pytest.raises(NoSuchAgent):
            system.agent_for("most-recent-foreground")


@pytest.mark.feature("T-02")
def test_a_strategy_names_the_agent_that_was_used_last(tmp_path: Path) -> None:
    """It is an id, which `post` takes."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        system.post(PERSON, "one").wait()
        latest = system.post({**PERSON, "userId": "9"}, "two")
        latest.wait()
        assert system.agent_for("most-recent-foreground") == latest.session.id
        assert system.post(latest.session.id, "three").session.id == latest.session.id

        with pytest.raises(UsageError, match="no strategy"):
            system.agent_for("newest")


@pytest.mark.feature("T-05")
def test_an_agent_that_names_no_target_speaks_to_its_parent_or_the_foreground(
    tmp_path: Path,
) -> None:
    """Both get a system message that says from whom it is."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        person = system.post(PERSON, "hello").session
        child = system.post({"type": "subagent", "parentAgentId": person.id, "name": "c"}, "go")
        task = system.post({"type": "cron", "id": "nightly"}, "report")
        for execution in (child, task):
            execution.wait()

        for sender in (child.session, task.session):
            answer = system.post(None, "done", sender=sender.id)
            assert answer.session.id == person.id
            assert answer.result.response == (
                f'<system_message origin="{sender.id}">done</system_message>'
            )
        queued = [r["data"] for r in records(person) if r["event"] == "message.enqueued"]
        assert [(one["sender"], one["kind"]) for one in queued[-2:]] == [
            (child.session.id, "system"),
            (task.session.id, "system"),
        ]


@pytest.mark.feature("G-05")
def test_a_subagent_that_is_closed_is_followed_by_one_with_a_new_id(tmp_path: Path) -> None:
    """While it lives, its name means it."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        person = system.post(PERSON, "hello").session
        wanted = {"type": "subagent", "parentAgentId": person.id, "name": "reviewer"}
        first = system.post(wanted, "one")
        first.wait()
        assert system.post(wanted, "two").session.id == first.session.id
        first.session.close()
        assert system.post(wanted, "three").session.id != first.session.id


@pytest.mark.feature("G-04")
def test_loading_ends_what_a_crash_left_open_and_sends_nothing_again(tmp_path: Path) -> None:
    """A message that waits stays in its inbox until the next one comes."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        session = system.post(PERSON, "hello").session
        session.executions and session.executions[0].wait()
        waiting = session.queue("waiting")
        log = session.paths.log
        # As a process leaves it that is killed in its turn.
        lost = ("turn.complete", "message.delivered")
        rows = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(row for row in rows if orjson.loads(row)["event"] not in lost))

    with AgentSystem(ECHO, root=tmp_path) as system:
        (restored,) = system.load()
        session = system.session(restored.agent_id)
        assert restored.state == "suspended"
        assert [one["messageId"] for one in session.queued_messages] == [waiting]
        events = [record["event"] for record in records(session)]
        assert events.count("turn.start") == 1
        assert "turn.aborted" in events
        assert [one.actions for one in system.load()] == [()]

        assert system.post(PERSON, "next").result.response == "next"
        assert session.queued_messages == []


def test_loading_an_agents_directory_that_is_not_there_does_nothing(tmp_path: Path) -> None:
    """At the first boot."""
    with AgentSystem(ECHO, root=tmp_path / "root") as system:
        assert system.load() == []
    assert not (tmp_path / "root").exists()


def test_an_agent_that_is_there_keeps_its_settings(tmp_path: Path) -> None:
    """The configuration is for agents that are made here."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        session = system.post(PERSON, "hello").session
    with AgentSystem(AgentConfig(system="Be wordy."), root=tmp_path) as system:
        system.post(PERSON, "more").wait()
        system.post(session.id, "more").wait()
    assert "agent.set" not in [record["event"] for record in records(session)]


def test_callbacks_have_each_agent_that_is_made_and_none_that_is_found(tmp_path: Path) -> None:
    """Once each, however the agent is named."""
    made: list[str] = []
    callbacks = Callbacks(on_session_create=lambda ref: made.append(ref.id))
    with AgentSystem(ECHO, root=tmp_path, callbacks=callbacks) as system:
        person = system.post(PERSON, "hello")
        system.post(PERSON, "more")
        system.post(person.session.id, "more")
        other = system.post({"type": "heartbeat"}, "beat")
        assert made == [person.session.id, other.session.id]


def test_an_agent_with_the_props_of_another_program_takes_messages(tmp_path: Path) -> None:
    """They are of that program's component, which this one does not know."""

    def component(model: str = "") -> AgentConfig:
        return AgentConfig(provider="bot", model=model)

    with bot(lambda request: request.model):
        with App(component, root=tmp_path) as app:
            app.session("theirs").render({"model": "b-2"}).wait()
        with AgentSystem(root=tmp_path) as system:
            assert system.post("theirs", "hi").result.response == "b-2"
        with TurnScheduler(root=tmp_path) as scheduler:
            assert scheduler.send_turn("theirs", "hi") == "b-2"
        session = AgentSession.create(root=tmp_path, session_id="theirs")
        assert session.send_message("hi").execution.result.response == "b-2"


@pytest.mark.parametrize(
    "descriptor",
    [
        {},
        {"type": "robot"},
        {"type": ["user"]},
        {"type": "cron"},
        {"type": "cron", "id": ""},
        {"type": "cron", "id": 7},
        {"type": "user", "connector": "telegram", "userId": "1"},
        {"type": "user", "connector": "telegram", "userId": 1, "channelId": "2"},
        {"type": "subagent", "name": "x"},
    ],
)
def test_what_is_no_descriptor_makes_no_agent(tmp_path: Path, descriptor: Any) -> None:
    """Each field of its kind is a text."""
    system = AgentSystem(ECHO, root=tmp_path / "root")
    with pytest.raises(UsageError) as caught:
        system.post(descriptor, "hi")
    assert caught.value.kind == "bad-descriptor"
    assert not (tmp_path / "root").exists()


def test_an_inbox_that_takes_no_message_is_an_error_of_the_call(tmp_path: Path) -> None:
    """What is not on disk is not in a result that is looked at later."""
    with AgentSystem(ECHO, root=tmp_path) as system:
        session = system.post(PERSON, "hello").session
        for execution in session.executions:
            execution.wait()
        session.close()
        with pytest.raises(SessionStateError):
            system.post(session.id, "more")
        with pytest.raises(AgentsdirError) as caught:
            system.post(PERSON, [])
        assert caught.value.kind == "bad-prompt"
        with pytest.raises(UsageError, match="no agent is named"):
            system.post(None, "hi")
        for unknown in (("none", {}), (session.id, {"sender": "none"})):
            with pytest.raises(NoSuchAgent):
                system.post(unknown[0], "hi", **unknown[1])
