"""Components and elements: how the configuration of a turn is made, and what becomes of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from gates import ECHO, LONG, gated, wait_for
from looping import model

from agentsdir import AgentConfig, App, Session, element
from agentsdir.engine.settings import current_settings
from agentsdir.formats.errors import AgentsdirError, SessionStateError, UsageError


def Support(tone: str = "plain", *, language: str = "en") -> AgentConfig:  # noqa: N802, a component
    """Return a configuration that its props are in."""
    return AgentConfig(system=f"{tone} {language}")


def system_of(session: Session) -> str:
    """Return the system prompt that the agent has on disk."""
    return current_settings(session.paths, session._state()).system_prompt


def test_props_of_an_element_of_the_session_and_of_a_render_come_together(tmp_path: Path) -> None:
    """The later ones win, one by one; the agent's settings follow."""
    with (
        model(lambda _: "ok", "bot"),
        App(element(Support, tone="warm"), root=tmp_path, provider="bot") as app,
    ):
        session = app.session("one")
        assert system_of(session) == "warm en"
        assert system_of(app.session("two", props={"language": "de"})) == "warm de"

        app.session("one", props={"language": "fr"})
        session.send("hi").wait(LONG)
        assert system_of(session) == "warm fr"
        session.render({"tone": "cool"}).wait(LONG)
        assert system_of(session) == "cool fr"


def test_a_component_is_called_for_each_turn_and_may_look_at_its_session(tmp_path: Path) -> None:
    """What it raises is the error of that turn alone."""
    asked: list[Any] = []

    def looks(session: Session | None = None) -> AgentConfig:
        asked.append(session)
        if len(asked) == 3:
            raise ZeroDivisionError
        return ECHO

    with App(looks, root=tmp_path) as app:
        session = app.session()
        session.send("one").wait(LONG)
        with pytest.raises(ZeroDivisionError):
            session.send("two").wait(LONG)
        assert session.send("three").result.response == "three"
    assert asked == [None, session, session, session]


@pytest.mark.parametrize(
    ("agent", "props", "kind"),
    [
        (Support, {"colour": "red"}, "bad-props"),
        (AgentConfig(provider="echo"), {"tone": "warm"}, "bad-props"),
        (lambda needed: ECHO, {}, "bad-props"),
        (lambda: None, {}, "bad-component"),
        (lambda: {"provider": "echo"}, {}, "bad-component"),
        ("echo", {}, "bad-component"),
        (None, {}, "bad-component"),
    ],
)
def test_what_is_no_component_or_gets_wrong_props_makes_no_session(
    agent: Any, props: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    """The error is ours, and the root stays empty."""
    app = App(agent, root=tmp_path)
    with pytest.raises(UsageError) as raised:
        app.session("one", props=props or None)
    assert raised.value.kind == kind
    with pytest.raises(UsageError):
        app.run("hi", props=props or None)
    assert not list(tmp_path.glob("agents/*"))


def test_wrong_props_of_a_session_that_is_there_leave_it_as_it_is(tmp_path: Path) -> None:
    """Those of a call of the app, and those of a render, which the log may refuse, too."""
    with model(lambda _: "ok", "bot"), App(Support, root=tmp_path, provider="bot") as app:
        session = app.session("one")
        with pytest.raises(UsageError) as raised:
            app.session("one", props={"colour": "red"})
        assert raised.value.kind == "bad-props"
        for wrong in ({"colour": "red"}, {"tone": object()}):
            with pytest.raises(AgentsdirError):
                session.render(wrong).wait(LONG)
        before = session.paths.log.read_bytes()
        assert b"props.set" not in before
        assert session.send("hi").wait(LONG).response == "ok"
        assert not session.props


def test_props_of_a_log_that_a_newer_component_does_not_take_are_left_out(tmp_path: Path) -> None:
    """The log keeps them, for a component that takes them."""

    def newer(tone: str = "calm") -> AgentConfig:
        return AgentConfig(system=tone)

    with model(lambda _: "ok", "bot"):
        with App(Support, root=tmp_path, provider="bot") as app:
            app.session("one").render({"tone": "cool", "language": "de"}).wait(LONG)
        with App(newer, root=tmp_path, provider="bot") as app:
            session = app.session("one")
            assert session.send("hi").wait(LONG).response == "ok"
            assert (system_of(session), dict(session.props)) == ("cool", {"tone": "cool"})
        with App(AgentConfig(), root=tmp_path, provider="bot") as app:
            assert app.session("one").send("hi").wait(LONG).response == "ok"
        with App(Support, root=tmp_path, provider="bot") as app:
            assert app.session("one").props == {"tone": "cool", "language": "de"}


def test_a_session_has_the_model_and_prompt_of_its_configuration_whichever_program_made_it(
    tmp_path: Path,
) -> None:
    """Another program that configures it differently changes the settings with its first turn."""
    said: list[tuple[str, str]] = []

    def answer(request: Any) -> str:
        said.append((request.system, request.model))
        return "ok"

    with model(answer, "bot"):
        first = AgentConfig(provider="bot", system="one", model="m1")
        with App(first, root=tmp_path) as app:
            app.session("s").send("hi").wait(LONG)
        second = AgentConfig(provider="bot", system="two", model="m2")
        with App(second, root=tmp_path, model="m3") as app:
            app.session("s").send("hi").wait(LONG)
    assert said == [("one", "m1"), ("two", "m2")]


def test_a_message_that_is_not_wanted_any_more_ends_with_its_session(tmp_path: Path) -> None:
    """A closed session's component is not asked any more."""
    asked: list[int] = []

    def counts() -> AgentConfig:
        asked.append(1)
        return ECHO

    with App(counts, root=tmp_path) as app:
        session = app.session()
        session.close()
        with pytest.raises(SessionStateError):
            session.send("late").wait(LONG)
        with pytest.raises(AgentsdirError):
            session.render().wait(LONG)


def test_a_component_is_asked_when_its_turn_comes_and_not_when_it_is_sent(tmp_path: Path) -> None:
    """It sees what the turns before it have left, with a provider that heeds nothing of it, too."""
    seen: list[Any] = []

    def counts(session: Session | None = None) -> AgentConfig:
        known = {} if session is None else session.state
        return AgentConfig(provider="bot", system=f"step {known.get('step', 0)}")

    def answer(request: Any) -> str:
        seen.append(request.system)
        may_go.wait(LONG)
        session.set_state(step=len(seen))
        return "ok"

    may_go = threading.Event()
    with model(answer, "bot"), App(counts, root=tmp_path) as app:
        session = app.session()
        executions = [session.send(text) for text in ("one", "two", "three")]
        wait_for(lambda: executions[2].message_id)
        may_go.set()
        assert [one.wait(LONG).response for one in executions] == ["ok"] * 3
    assert seen == ["step 0", "step 1", "step 2"]


def test_a_provider_that_heeds_no_prompt_or_model_stands_in_for_one_that_does(
    tmp_path: Path,
) -> None:
    """As `echo` and `script` do in tests of a program, also when the component changes its mind."""
    with App(element(Support, tone="warm"), root=tmp_path, provider="echo", model="m") as app:
        session = app.session("one")
        assert session.send("hi").result.response == "hi"
        assert session.render.with_timeout(9)({"tone": "cool"}).result.response == ""


def test_a_component_that_fails_when_its_turn_comes_leaves_no_message(tmp_path: Path) -> None:
    """The message was queued behind a turn that ran; the next one is not kept back."""
    calls: list[int] = []

    def fails_third() -> AgentConfig:
        calls.append(1)
        if len(calls) == 4:  # of the session, of two sends, and when the turn of the second comes
            raise ZeroDivisionError
        return AgentConfig(provider="gated")

    with gated() as gate, App(fails_third, root=tmp_path) as app:
        session = app.session()
        first = session.send("first")
        gate.wait_for("first")
        second = session.send("second")
        wait_for(lambda: second.message_id)
        gate.go()
        assert first.wait(LONG).response == "first"
        with pytest.raises(ZeroDivisionError):
            second.wait(LONG)
        assert session.send("third").wait(LONG).response == "third"
        assert session.queued_messages == []
    assert gate.prompts == ["first", "third"]
