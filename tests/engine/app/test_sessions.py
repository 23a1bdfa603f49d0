"""Sessions of an app: made or found by name, their turns in order, what they have on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentsdir
from agentsdir import (
    AgentConfig,
    AgentSession,
    App,
    ToolCall,
    UsageError,
    model_provider,
    write_script,
)
from agentsdir.adapters import registry

ECHO = AgentConfig(provider="echo")


def test_a_name_means_the_same_session_in_memory_and_on_disk(tmp_path: Path) -> None:
    """A program that is started again goes on with its sessions."""
    with App(ECHO, root=tmp_path) as app:
        first = app.session("user-123")
        assert app.session("user-123") is first
        assert app.session(first.id) is first

    with App(ECHO, root=tmp_path) as other:
        again = other.session("user-123")
        assert (again.id, again.name) == (first.id, "user-123")


def test_a_name_that_was_closed_before_is_of_a_new_session_each_time(tmp_path: Path) -> None:
    """However many closed ones have it."""
    with App(ECHO, root=tmp_path) as app:
        made = []
        for _ in range(3):
            made.append(app.session("user-123"))
            made[-1].close()
        again = app.session("user-123")
        assert len({session.id for session in (*made, again)}) == 4
        assert app.session("user-123") is again


def test_a_send_is_a_turn_whose_events_and_result_come_from_one_handle(tmp_path: Path) -> None:
    """The handle has all events, and the answer."""
    with App(ECHO, root=tmp_path) as app:
        execution = app.session().send("good morning")

        assert execution.result.response == "good morning"
        kinds = [event["type"] for event in execution]

        assert kinds[0] == "block_complete"
        assert kinds[-1] == "metadata_update"
        assert execution.result.response == "good morning"
        assert execution.id == execution.result.turn_id


def test_sends_of_one_session_run_in_the_order_of_the_calls(tmp_path: Path) -> None:
    """Each turn waits for those before it, and a queued message stands behind them."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        executions = [session.send(f"number {number}") for number in range(20)]
        waiting = session.queue("last")

        assert [one.result.response for one in executions] == [f"number {n}" for n in range(20)]
        assert [one["messageId"] for one in session.queued_messages] == [waiting]


def test_middleware_of_the_app_is_outside_of_that_of_the_call(tmp_path: Path) -> None:
    """The order is from the outside to the inside, for turns and for what works at once."""
    said: list[str] = []

    def saying(name: str) -> Any:
        def wrap(call: Any, next_: Any) -> Any:
            said.append(f"{name} before {call.procedure}")
            result = next_(call)
            said.append(f"{name} after")
            return result

        return wrap

    with App(ECHO, root=tmp_path) as app:
        app.use(saying("app"))
        session = app.session()

        session.send.use(saying("first")).use(saying("second"))("hello").wait()
        session.queue.use(saying("queue"))("later")

    assert said == [
        "app before send",
        "first before send",
        "second before send",
        "second after",
        "first after",
        "app after",
        "app before queue",
        "queue before queue",
        "queue after",
        "app after",
    ]


def test_each_name_of_the_library_is_there() -> None:
    """None of them is misspelt, and each imports."""
    assert [name for name in agentsdir.__all__ if getattr(agentsdir, name, None) is None] == []


def test_an_option_that_is_misspelt_is_an_error(tmp_path: Path) -> None:
    """As a wrong argument is, and without a type checker."""
    with pytest.raises(TypeError, match=r"no option 'max_activ'; there are .*max_active"):
        App(ECHO, root=tmp_path, max_activ=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no option 'architectur'"):
        AgentSession.create(root=tmp_path, architectur="echo")  # type: ignore[call-arg]
    assert list(tmp_path.iterdir()) == []


def test_sessions_and_executions_say_in_a_debugger_what_they_are(tmp_path: Path) -> None:
    """Their ids are those of the commands, and nothing is read for it."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        execution = session.send("hello")
        execution.wait()
    assert repr(session) == f"<session {session.id}>"
    assert repr(execution) == f"<execution {execution.id} of session {session.id}, done>"
    assert repr(session.send) == f"<procedure send of <session {session.id}>>"


def test_what_a_configuration_says_goes_before_the_app_and_what_a_spawn_says_before_both(
    tmp_path: Path,
) -> None:
    """An app has defaults, a component its own, and a spawn overrides."""
    provider = model_provider("naming", lambda request: f"{request.model} said it")
    try:
        with App(AgentConfig(), root=tmp_path, provider=provider, model="small") as app:
            own = App(AgentConfig(model="large"), root=tmp_path, provider=provider, model="small")
            assert app.session().send("who?").result.response == "small said it"
            assert own.session().send("who?").result.response == "large said it"
            child = app.session().spawn(AgentConfig(model="large"), "who?", model="cheap")
            assert child.result.response == "cheap said it"
            own.close()
    finally:
        registry.unregister("naming")


@pytest.mark.parametrize("name", [42, "a/b", "@ada", "-x", " ada", "x" * 129])
def test_what_can_be_no_name_of_a_session_is_said_where_it_is_given(
    tmp_path: Path, name: Any
) -> None:
    """Chats know their users by numbers, and by texts of any kind."""
    with App(ECHO, root=tmp_path) as app, pytest.raises(UsageError) as refused:
        app.session(name)
    assert refused.value.kind == "bad-id"
    assert "1 to 128" in f"{refused.value} {refused.value.hint}" or "is a text" in str(
        refused.value
    )


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (AgentConfig(provider="echo", tools=[len]), "bad-tool", "`tool`"),  # type: ignore[list-item]
        (AgentConfig(provider=len), "bad-provider", "model_provider"),  # type: ignore[arg-type]
    ],
)
def test_a_plain_function_is_no_tool_and_no_provider_and_the_error_names_what_makes_one(
    tmp_path: Path, given: AgentConfig, kind: str, says: str
) -> None:
    """It is the first mistake that a program makes."""
    with App(given, root=tmp_path) as app, pytest.raises(UsageError) as refused:
        app.session().send("hello").wait()
    assert refused.value.kind == kind
    assert says in refused.value.hint


@pytest.mark.parametrize("turn", ["hello", ToolCall("add", {}), {"type": "turn"}])
def test_a_turn_of_a_script_that_is_no_list_is_refused(tmp_path: Path, turn: Any) -> None:
    """The letters of a text would be its pieces."""
    path = tmp_path / "model.jsonl"
    with pytest.raises(UsageError) as refused:
        write_script(path, ["one"], turn)
    assert refused.value.kind == "bad-script"
    assert not path.exists()


def test_a_session_keeps_its_provider_and_another_one_is_an_error(tmp_path: Path) -> None:
    """Nothing is sent; one that names none goes on, and a new session has what is named."""
    script = write_script(tmp_path / "model.jsonl", ["of the script"])
    with App(ECHO, root=tmp_path / "root") as app:
        app.session("ada").send("hello").wait()

    later = AgentConfig(provider="script", options={"file": script})
    with App(later, root=tmp_path / "root") as app:
        with pytest.raises(UsageError) as refused:
            app.session("ada").send("again").wait()
        assert refused.value.kind == "provider-differs"
        assert app.session("ada").queued_messages == []
        assert app.session("bob").send("again").result.response == "of the script"
    with App(AgentConfig(), root=tmp_path / "root") as app:
        assert app.session("ada").send("again").result.response == "again"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("system", None),
        ("system", 5),
        ("model", None),
        ("cwd", Path("/w")),
        ("profile", None),
        ("permission_mode", 7),
        ("max_ticks", True),
        ("max_ticks", 2.5),
        ("max_ticks", "5"),
        ("fallbacks", "echo"),
    ],
)
def test_a_configuration_that_a_log_cannot_take_is_refused_where_it_is_made(
    field: str, value: Any
) -> None:
    """Else the log would have what `validate` calls damage, and no import takes."""
    fields: dict[str, Any] = {field: value}
    with pytest.raises(UsageError, match=f"`{field}` of an AgentConfig") as raised:
        AgentConfig(**fields)
    assert raised.value.kind == "bad-config"
