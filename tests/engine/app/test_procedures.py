"""Middleware, contexts and time limits around the calls of a session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gates import ECHO, LONG, logged
from looping import model

from agentsdir import AgentConfig, App
from agentsdir.formats.errors import AgentsdirError, ProviderError, UsageError


def texts(session: Any) -> list[str]:
    """Return the prompts of a session, in the order in which they were queued."""
    queued = [
        r["data"]["content"] for r in logged(session.paths) if r["event"] == "message.enqueued"
    ]
    return [content[0]["text"] for content in queued]


def test_middleware_changes_what_is_sent_and_what_is_returned(tmp_path: Path) -> None:
    """The call that it passes on is the one that is made, and its result the execution's."""

    def loud(call: Any, next_: Any) -> Any:
        result = next_(call.with_arguments(call.args[0].upper()))
        return result._replace(response=f"{result.response}!")

    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        assert session.send.use(loud)("hello").result.response == "HELLO!"
        assert session.spawn.use(_first_argument_again)(ECHO, "child").result.response == "child"
        session.queue.use(lambda call, next_: next_(call.with_arguments("other")))("one")
        assert texts(session) == ["HELLO", "other"]


def _first_argument_again(call: Any, next_: Any) -> Any:
    return next_(call.with_arguments(call.args[0], call.args[1]))


def test_middleware_that_raises_before_next_keeps_the_call_from_being_made(tmp_path: Path) -> None:
    """Its own error is the result; what it raises after `next` is, too, and the turn was run."""

    def before(_call: Any, _next: Any) -> Any:
        raise PermissionError("not today")

    def after(call: Any, next_: Any) -> Any:
        next_(call)
        raise PermissionError("too late")

    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        for wrap, words in ((before, "not today"), (after, "too late")):
            with pytest.raises(PermissionError, match=words):
                _ = session.send.use(wrap)("hello").result
        with pytest.raises(PermissionError):
            session.queue.use(before)("hello")
        assert session.send("next").result.response == "next"
        assert texts(session) == ["hello", "next"]


def test_middleware_that_calls_next_twice_runs_two_turns_in_one_execution(tmp_path: Path) -> None:
    """As one does that tries again: the events of both come, and the last result counts."""
    calls: list[int] = []

    def fails_once(request: Any) -> str:
        calls.append(request.tick)
        if len(calls) == 1:
            raise ValueError("busy")
        return "at last"

    def again(call: Any, next_: Any) -> Any:
        try:
            return next_(call)
        except ProviderError:
            return next_(call)

    config = AgentConfig(provider="flaky")
    with model(fails_once, "flaky"), App(config, root=tmp_path) as app:
        session = app.session()
        execution = session.send.use(again)("hello")
        later = session.send("later")

        assert execution.result.response == "at last"
        assert execution.id == execution.result.turn_id
        prompts = [e for e in execution if e.get("block", {}).get("type") == "user_message"]
        assert len(prompts) == 2
        assert later.result.response == "at last"
    assert sorted(texts(session)) == ["hello", "hello", "later"]


def test_middleware_that_never_calls_next_makes_the_result_itself(tmp_path: Path) -> None:
    """Nothing is sent then. What is no result is an error, as when it forgets to return."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        known = session.send("known").result
        cached = session.send.use(lambda _call, _next: known)("again")
        assert cached.result is known

        def forgets(call: Any, next_: Any) -> Any:
            next_(call)

        with pytest.raises(UsageError, match="returned NoneType") as raised:
            _ = session.send.use(forgets)("forgotten").result
        assert raised.value.kind == "bad-middleware"
        assert session.send("next").result.response == "next"
        assert texts(session) == ["known", "forgotten", "next"]


def test_a_procedure_is_left_as_it_is_by_what_is_made_of_it(tmp_path: Path) -> None:
    """`use`, `with_context` and `with_timeout` return another one, in any order."""
    seen: list[Any] = []

    def notes(call: Any, next_: Any) -> Any:
        seen.append((dict(call.context), call.timeout, call.procedure))
        return next_(call)

    with App(ECHO, root=tmp_path) as app:
        app.use(notes)
        session = app.session()
        plain = session.send
        noted = plain.with_context(user="u1").with_timeout(5).with_context(request="r1")
        noted("one").wait(LONG)
        plain("two").wait(LONG)
        session.render.with_context(user="u2")().wait(LONG)

    assert seen == [
        ({"user": "u1", "request": "r1"}, 5, "send"),
        ({}, 0, "send"),
        ({"user": "u2"}, 0, "render"),
    ]


def test_a_wrong_argument_is_an_error_where_the_call_is_made(tmp_path: Path) -> None:
    """And not in the thread of a turn: no turn begins."""
    with App(ECHO, root=tmp_path) as app:
        session: Any = app.session()
        for call in (
            lambda: session.send(),
            lambda: session.send("one", "two"),
            lambda: session.send(text="one"),
            lambda: session.spawn(ECHO),
            lambda: session.queue("one", later=True),
        ):
            with pytest.raises(TypeError):
                call()
        assert session.executions == ()


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        [],
        [{"type": "video"}],
        {"content": None},
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "assistant", "content": "I said"}]},
        7,
        None,
    ],
)
def test_what_is_no_prompt_is_refused_and_nothing_is_queued(prompt: Any, tmp_path: Path) -> None:
    """By all procedures that take one, with an error of ours."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        for execution in (session.send(prompt), session.spawn(ECHO, prompt), app.run(prompt)):
            with pytest.raises(AgentsdirError) as raised:
                execution.wait(LONG)
            assert raised.value.kind == "bad-prompt"
        with pytest.raises(AgentsdirError):
            session.queue(prompt)
        assert session.queued_messages == []


@pytest.mark.parametrize(
    "prompt",
    [
        "hi",
        ["hi"],
        [{"type": "text", "text": "hi"}],
        {"content": "hi"},
        {"content": [{"type": "text", "text": "hi"}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]},
        {"messages": ["h", {"content": "i"}]},
    ],
)
def test_a_prompt_has_any_form_that_the_seed_and_python_have(prompt: Any, tmp_path: Path) -> None:
    """A text, parts, a message, messages: one turn each."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        answer = session.send(prompt).result.response
    assert answer.replace("\n", "") == "hi"
    assert len(texts(session)) == 1
