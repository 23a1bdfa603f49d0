"""Executions: their order, how they end early, and what threads that wait for them get."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from commands import run_here
from gates import ECHO, GATED, LONG, Gate, endings, gated, kind_of, logged, outcomes, wait_for

from agentsdir import AgentConfig, App, AsyncExecution, Callbacks
from agentsdir.formats.errors import (
    AgentsdirError,
    Interruption,
    ProviderError,
    SessionStateError,
    TurnTimeout,
    UsageError,
)
from agentsdir.formats.store import locks

# The order.


def test_turns_are_in_the_order_of_the_calls_that_many_threads_make(tmp_path: Path) -> None:
    """Each thread sends and queues; what it did first stands before what it did then."""
    with App(ECHO, root=tmp_path) as app:
        session = app.session()

        def send(thread: int) -> list[str]:
            return [session.send(f"{thread} {number}").result.response for number in range(5)]

        with ThreadPoolExecutor(8) as pool:
            said = list(pool.map(send, range(8)))

    assert said == [[f"{thread} {number}" for number in range(5)] for thread in range(8)]
    started = [one for one in logged(session.paths) if one["event"] == "turn.start"]
    assert len(started) == 40
    assert endings(session.paths) == ["complete"] * 40


def test_a_slow_call_keeps_its_place_before_later_ones(tmp_path: Path) -> None:
    """Middleware that takes long before the message is there; nothing overtakes it."""
    may_go = threading.Event()

    def slow(call: Any, next_: Any) -> Any:
        assert may_go.wait(LONG)
        return next_(call)

    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        first, second = session.send.use(slow)("first"), session.send("second")
        queued = threading.Thread(target=session.queue, args=("third",))
        queued.start()
        assert not second.is_done
        may_go.set()
        queued.join(LONG)

        assert [first.result.response, second.result.response] == ["first", "second"]
    texts = [
        r["data"]["content"] for r in logged(session.paths) if r["event"] == "message.enqueued"
    ]
    assert [content[0]["text"] for content in texts] == ["first", "second", "third"]


def test_a_call_that_fails_before_its_message_lets_no_later_one_pass_an_earlier_one(
    tmp_path: Path,
) -> None:
    """The second one fails at once, while the first one is not in the inbox yet."""
    may_go = threading.Event()

    def slow(call: Any, next_: Any) -> Any:
        assert may_go.wait(LONG)
        return next_(call)

    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        first, second = session.send.use(slow)("first"), session.send([])
        third = session.send("third")
        assert kind_of(second) == "bad-prompt"
        may_go.set()
        assert third.result.response == "third"
        assert first.is_done

    texts = [
        r["data"]["content"] for r in logged(session.paths) if r["event"] == "message.enqueued"
    ]
    assert [content[0]["text"] for content in texts] == ["first", "third"]


def test_a_turn_that_waits_for_itself_or_for_a_later_one_is_an_error(tmp_path: Path) -> None:
    """A middleware of the turn asks for the result of a send of the same session."""
    found: list[AgentsdirError] = []

    def asks(call: Any, next_: Any) -> Any:
        inner = call.session.send("inner")
        with pytest.raises(UsageError) as raised:
            _ = inner.result
        found.append(raised.value)
        call.session.queue("before")
        return next_(call)

    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        outer = session.send.use(asks)("outer")
        assert outer.wait(LONG).response == "outer"
        with pytest.raises(UsageError, match="inside of a turn"):
            session.send.use(lambda _call, _next: app.close())("closes").wait(LONG)

    assert [one.kind for one in found] == ["waits-for-itself"]
    texts = [
        r["data"]["content"] for r in logged(session.paths) if r["event"] == "message.enqueued"
    ]
    assert [content[0]["text"] for content in texts] == ["before", "outer", "inner"]


def test_two_turns_that_wait_for_each_other_are_an_error_for_the_second(tmp_path: Path) -> None:
    """A middleware of each sends to the other's session, and waits."""
    kinds: list[str] = []

    def asks(call: Any, next_: Any) -> Any:
        try:
            _ = other[call.session.name].send.use(*then[call.session.name])("inner").result
        except UsageError as error:
            kinds.append(error.kind)
        return next_(call)

    with App(ECHO, root=tmp_path) as app:
        first, second = app.session("first"), app.session("second")
        other = {"first": second, "second": first}
        then: dict[str, list[Any]] = {"first": [asks], "second": []}
        assert first.send.use(asks)("outer").wait(LONG).response == "outer"

    assert kinds == ["waits-for-itself"]


@pytest.mark.parametrize("callback", ["on_tick_start", "on_complete", "on_after_send"])
def test_a_session_is_closed_inside_of_its_own_turn(tmp_path: Path, callback: str) -> None:
    """The call does not wait for the turn, which waits for the call."""

    def ends(*_: Any) -> None:
        session.close()

    with App(ECHO, root=tmp_path, callbacks=Callbacks(**{callback: ends})) as app:
        session = app.session()
        execution = session.send("hello")
        wait_for(lambda: execution.is_done)
        assert session.status == "closed"


def test_a_render_leaves_the_messages_of_later_calls_to_them(app: App, gate: Gate) -> None:
    """And runs those that nothing waits for; each callback is called once for a turn."""
    done: list[Any] = []
    session = app.session(callbacks=Callbacks(on_complete=done.append))
    first = session.send("first")
    gate.wait_for("first")
    rendered, second = session.render(), session.send("second")
    wait_for(lambda: len(session.queued_messages) == 1)
    gate.go()

    results = [one.wait(LONG) for one in (first, rendered, second)]

    assert [result.response for result in results] == ["first", "", "second"]
    assert [result.turn_id for result in done] == [result.turn_id for result in results]
    session.queue("third")
    assert session.render().wait(LONG).response == "third"


# Ending early.


def test_a_turn_that_runs_is_aborted_and_what_it_has_said_is_kept(app: App, gate: Gate) -> None:
    """Abort does not wait; the result is an error of ours, also when it is asked for again."""
    session = app.session()
    execution = session.send("long")
    gate.wait_for("long")
    execution.abort("enough")
    execution.abort("enough")

    assert [kind_of(execution), kind_of(execution)] == ["turn-aborted", "turn-aborted"]
    assert execution.is_aborted
    assert endings(session.paths) == ["aborted"]
    asked = [r["data"] for r in logged(session.paths) if r["event"] == "abort.requested"]
    assert {one["message"] for one in asked} == {"enough"}
    assert [event["type"] for event in execution] == ["block_complete"]  # the prompt
    assert session.status == "idle"
    gate.go()
    assert session.send("next").result.response == "next"


def test_a_turn_that_waits_for_an_earlier_one_is_aborted_at_once(app: App, gate: Gate) -> None:
    """Its result is there while the earlier one runs, and its message never has a turn."""
    session = app.session()
    first, second, third = (session.send(text) for text in ("first", "second", "third"))
    gate.wait_for("first")
    wait_for(lambda: second.message_id)
    second.abort()

    assert kind_of(second) == "turn-aborted"
    assert list(second) == []
    assert not first.is_done
    gate.go()
    assert [first.result.response, third.result.response] == ["first", "third"]
    assert gate.prompts == ["first", "third"]
    assert outcomes(session.paths) == ["aborted", "completed", "completed"]


def test_a_turn_is_aborted_before_its_message_is_there(app: App, gate: Gate) -> None:
    """While its middleware waits: the message is never queued, and later ones do not wait."""
    may_go = threading.Event()

    def slow(call: Any, next_: Any) -> Any:
        assert may_go.wait(LONG)
        return next_(call)

    gate.go()
    session = app.session()
    execution = session.send.use(slow)("never")
    execution.abort()

    assert kind_of(execution) == "turn-aborted"
    assert session.send("later").result.response == "later"
    may_go.set()
    app.close()
    assert gate.prompts == ["later"]
    assert [r["event"] for r in logged(session.paths)].count("message.enqueued") == 1


def test_a_turn_that_waits_for_a_slot_is_aborted_at_once(tmp_path: Path) -> None:
    """Its agent runs nothing, and what comes after it does not wait for the slot of it."""
    (tmp_path / "settings.toml").write_text("max_slots = 1\n")
    with gated() as gate, App(GATED, root=tmp_path) as app:
        busy, other = app.session("busy"), app.session("other")
        running = busy.send("runs")
        gate.wait_for("runs")
        waiting = other.send("waits")
        rendered = app.session("third").render()
        wait_for(lambda: waiting.message_id)
        waiting.abort()
        rendered.abort()

        assert [kind_of(waiting), kind_of(rendered)] == ["turn-aborted", "turn-aborted"]
        assert not running.is_done
        gate.go()
        assert other.send("then").result.response == "then"
        assert running.result.response == "runs"
        assert outcomes(other.paths) == ["aborted", "completed"]
    assert [endings(other.paths), gate.prompts] == [["complete"], ["runs", "then"]]


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(
    "call",
    [lambda one: one.send("waits"), lambda one: one.render()],
    ids=["send", "render"],
)
def test_an_abort_before_the_turn_ends_the_wait_for_a_slot(
    tmp_path: Path, app: App, gate: Gate, call: Any, queued: bool
) -> None:
    """Also that of a message before it: its agent can run a turn of another process at once."""
    (tmp_path / "settings.toml").write_text("max_slots = 1\n")
    late = app.session("late")
    running = app.session("busy").send("runs")
    gate.wait_for("runs")
    if queued:
        late.queue("before")
    waiting = call(late)
    wait_for(lambda: locks.is_held(late.paths.turn))
    waiting.abort()
    wait_for(lambda: not locks.is_held(late.paths.turn))
    assert not running.is_done


def test_an_abort_ends_the_wait_for_a_turn_of_another_program(app: App, gate: Gate) -> None:
    """The app closes while that turn runs."""
    session = app.session()
    with App(GATED, root=session.paths.folder.parent.parent) as other:
        runs = other.session(session.id).send("runs")
        gate.wait_for("runs")
        waits = session.send("waits")
        wait_for(lambda: waits.message_id)
        waits.abort()
        closing = threading.Thread(target=app.close)
        closing.start()
        closing.join(LONG)
        assert (closing.is_alive(), runs.is_done) == (False, False)
        gate.go()
        assert runs.result.response == "runs"
    assert [kind_of(waits), outcomes(session.paths)] == ["turn-aborted", ["aborted", "completed"]]


@pytest.mark.parametrize("runs", [True, False])
def test_an_abort_of_a_turn_that_another_program_runs_has_what_the_log_says(
    app: App, gate: Gate, runs: bool
) -> None:
    """One that runs is asked to end; one that has ended stays as it is."""
    may_go = threading.Event()

    def lingers(call: Any, next_: Any) -> Any:
        try:
            return next_(call)
        finally:
            assert may_go.wait(LONG)

    session = app.session()
    if not runs:
        gate.go()
    first = session.send.use(lingers)("first")
    gate.wait_for("first")
    second = session.send("second")
    wait_for(lambda: second.message_id)
    with App(GATED, root=session.paths.folder.parent.parent) as other:
        if runs:
            wait_for(lambda: session.queued_messages)
            first.abort()
        third = other.session(session.id).send("third")
        gate.wait_for("second")
        if not runs:
            third.wait(LONG)
        second.abort()
        gate.go()
        third.wait(LONG)
        may_go.set()
        if runs:
            assert kind_of(second) == "turn-aborted"
        else:
            assert second.wait(LONG).response == "second"
    started = [one["data"] for one in logged(session.paths) if one["event"] == "turn.start"]
    assert second.id == started[1]["turn_id"]
    assert endings(session.paths) == (
        ["aborted", "aborted", "complete"] if runs else ["complete"] * 3
    )


def test_a_render_that_is_aborted_leaves_the_messages_that_it_has_not_begun(
    app: App, gate: Gate
) -> None:
    """They stay in the inbox, for the next turn."""
    session = app.session()
    session.queue("first")
    session.queue("second")
    rendered = session.render()
    gate.wait_for("first")
    rendered.abort()

    assert kind_of(rendered) == "turn-aborted"
    assert [m["content"][0]["text"] for m in session.queued_messages] == ["second"]


def test_what_has_ended_cannot_be_aborted_any_more(app: App, gate: Gate) -> None:
    """Neither it nor the turn that runs by then."""
    session = app.session()
    gate.go()
    done = session.send("done")
    assert done.result.response == "done"
    done.abort()
    failed = session.send([])
    assert kind_of(failed) == "bad-prompt"
    failed.abort()

    assert done.result.response == "done"
    assert endings(session.paths) == ["complete"]
    assert session.send("next").result.response == "next"


def test_another_thread_and_another_process_abort_a_turn(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """`agentsdir interrupt` ends it as `abort` does."""
    session = app.session("worker")
    by_thread = session.send("one")
    gate.wait_for("one")
    thread = threading.Thread(target=by_thread.abort)
    thread.start()
    thread.join(LONG)
    assert kind_of(by_thread) == "turn-aborted"

    by_process = session.send("two")
    gate.wait_for("two")
    done = run_here(
        "--root", str(tmp_path), "interrupt", "worker", variables=os.environ, cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert kind_of(by_process) == "turn-aborted"
    assert not by_process.is_aborted  # `abort` was not called
    assert endings(session.paths) == ["aborted", "aborted"]


def test_a_session_is_interrupted_and_a_message_waits_for_its_next_turn(
    app: App, gate: Gate
) -> None:
    """`interrupt` says whether a turn ran."""
    session = app.session()
    assert session.interrupt() is False
    execution = session.send("long")
    gate.wait_for("long")
    assert [session.status, session.is_aborted] == ["running", False]
    assert session.interrupt("instead", reason="a better idea")
    assert session.is_aborted
    assert kind_of(execution) == "turn-aborted"
    assert [m["content"][0]["text"] for m in session.queued_messages] == ["instead"]


def test_a_turn_that_takes_longer_than_its_time_is_ended(app: App, gate: Gate) -> None:
    """The error says so; the wait for an earlier turn is no part of the time."""
    session = app.session()
    first, second = session.send("first"), session.send.with_timeout(30)("second")
    slow = app.session().send.with_timeout(0.2)("slow")
    with pytest.raises(TurnTimeout):
        slow.wait(LONG)
    gate.go()
    assert [first.result.response, second.result.response] == ["first", "second"]


def test_a_session_that_is_closed_ends_its_turns(app: App, gate: Gate) -> None:
    """Those that run, and those that wait; later calls are refused."""
    session = app.session("worker")
    running, waiting = session.send("runs"), session.send("waits")
    gate.wait_for("runs")
    session.close()

    assert running.is_done
    assert waiting.is_done
    assert [kind_of(running), kind_of(waiting)] == ["turn-aborted", "turn-aborted"]
    assert session.status == "closed"
    assert session.id not in app.sessions
    with pytest.raises(SessionStateError):
        _ = session.send("late").result
    with pytest.raises(SessionStateError):
        session.queue("late")
    session.close()
    assert app.session("worker").id != session.id
    with pytest.raises(SessionStateError):
        app.session(session.id)


# Results and events.


def test_many_threads_have_the_result_and_all_events_of_one_turn(app: App, gate: Gate) -> None:
    """Some come before its end, some after it."""
    execution = app.session().send("shared")
    with ThreadPoolExecutor(10) as pool:
        results = [pool.submit(lambda: execution.result) for _ in range(5)]
        events = [pool.submit(list, execution) for _ in range(5)]
        gate.go()
        assert {found.result(LONG).response for found in results} == {"shared"}
        lists = [found.result(LONG) for found in events]
    assert lists == [list(execution)] * 5
    assert [event["type"] for event in lists[0]][-2:] == ["text_delta", "block_complete"]
    half = iter(execution)
    next(half)
    assert list(half) == lists[0][1:]


def test_a_turn_that_fails_ends_the_iteration_and_raises_in_each_thread(tmp_path: Path) -> None:
    """What the provider raised is a `ProviderError`, also where it would end a thread."""
    from looping import model

    def fails(request: Any) -> Any:
        yield "half"
        raise SystemExit("no") if "exit" in str(request.content) else ValueError("no")

    failing = AgentConfig(provider="failing")
    with model(fails, "failing"), App(failing, root=tmp_path) as app:
        for text in ("fails", "exit"):
            execution = app.session().send(text)
            kinds = [event["type"] for event in execution]
            assert kinds[-1] == "block_complete"
            for _ in range(2):
                with pytest.raises(ProviderError):
                    execution.wait(LONG)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_would_end_the_thread_that_waits_is_an_interruption(
    tmp_path: Path, raised: type[BaseException]
) -> None:
    """As of middleware that exits."""

    def exits(_call: Any, _next: Any) -> Any:
        raise raised

    with App(ECHO, root=tmp_path) as app:
        execution = app.session().send.use(exits)("hi")
        with pytest.raises(Interruption) as found:
            execution.wait(LONG)
    assert isinstance(found.value.__cause__, raised)


def test_an_error_that_no_coroutine_can_raise_is_changed(tmp_path: Path) -> None:
    """A future of asyncio whose error is a StopIteration keeps what awaits it for ever."""

    async def result(execution: Any) -> Any:
        return await asyncio.wait_for(AsyncExecution(execution).result, LONG)

    with App(ECHO, root=tmp_path) as app:
        execution = app.session().send.use(lambda _call, _next: next(iter(())))("hi")
        with pytest.raises(RuntimeError, match="StopIteration"):
            asyncio.run(result(execution))


def test_a_wait_that_is_over_leaves_the_turn_alone(app: App, gate: Gate) -> None:
    """`wait` raises `TimeoutError`, and the turn goes on."""
    execution = app.session().send("long")
    with pytest.raises(TimeoutError):
        execution.wait(0.01)
    gate.go()
    assert execution.result.response == "long"


def test_a_turn_that_another_process_ran_has_its_result_and_its_events(
    app: App, gate: Gate, tmp_path: Path
) -> None:
    """The message is queued behind one whose turn runs, and a command takes it."""
    with App(ECHO, root=tmp_path) as other:
        session = other.session("worker")
        may_go = threading.Event()

        def holds(call: Any, next_: Any) -> Any:
            result = next_(call)
            assert may_go.wait(LONG)
            return result

        first = session.send.use(holds)("first")
        second = session.send("second")
        wait_for(lambda: second.message_id)
        wait_for(lambda: endings(session.paths))
        done = run_here(
            "--root",
            str(tmp_path),
            "send",
            "worker",
            "--no-message",
            variables=os.environ,
            cwd=tmp_path,
        )
        assert done.code == 0, done.err
        may_go.set()

        assert second.result.response == "second"
        assert first.result.response == "first"
        kinds = [(event["type"], event.get("block", {}).get("type")) for event in second]
    assert kinds[0] == ("block_complete", "user_message")
    assert ("block_complete", "assistant_text") in kinds
    assert second.id == second.result.turn_id


def test_an_app_waits_for_its_turns_at_the_end_of_its_block_or_aborts_them(
    tmp_path: Path,
) -> None:
    """An exception that leaves the block aborts them; else the app waits. Then it is closed."""

    def fails(gate: Gate, app: App) -> Any:
        with app:
            session = app.session()
            begun.extend((session.send("one"), app.run("two")))
            gate.wait_for("one")
            gate.wait_for("two")
            raise ZeroDivisionError

    begun: list[Any] = []
    with gated() as gate:
        app = App(GATED, root=tmp_path)
        with pytest.raises(ZeroDivisionError):
            fails(gate, app)
    running, ephemeral = begun
    session = running.session
    assert [kind_of(running), kind_of(ephemeral)] == ["turn-aborted", "turn-aborted"]
    assert list((tmp_path / "agents").iterdir()) == [session.paths.folder]

    for call in (app.session, lambda: app.run("x"), lambda: session.send("x")):
        with pytest.raises(UsageError, match="closed"):
            call()
    app.close()

    with App(ECHO, root=tmp_path) as again:
        late = again.run("three")
    assert late.is_done
    assert late.result.response == "three"


def test_an_ephemeral_run_leaves_no_session_whatever_becomes_of_it(tmp_path: Path) -> None:
    """It is removed when its turn has ended, also when it failed or was aborted."""
    with gated() as gate, App(GATED, root=tmp_path) as app:
        aborted = app.run("aborted")
        gate.wait_for("aborted")
        aborted.abort()
        assert kind_of(aborted) == "turn-aborted"
        refused = app.run([])
        assert kind_of(refused) == "bad-prompt"
        gate.go()
        assert app.run("fine").result.response == "fine"
        assert len(app.sessions) == 0
    assert list((tmp_path / "agents").iterdir()) == []


def test_a_turn_for_which_the_system_has_no_thread_is_an_error_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session goes on when there are threads again."""

    def refuses(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with App(ECHO, root=tmp_path) as app:
        session = app.session()
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuses)
            with pytest.raises(AgentsdirError) as raised:
                session.send("hello")
        assert (raised.value.kind, session.executions) == ("no-thread", ())
        assert session.send("hello").wait(LONG).response == "hello"


def test_no_thread_is_left_behind_and_each_has_its_name(tmp_path: Path) -> None:
    """After the app is closed there are those that were there before."""
    before = set(threading.enumerate())
    with gated() as gate, App(GATED, root=tmp_path, idle_timeout=60) as app:
        session = app.session()
        execution = session.send("one")
        gate.wait_for("one")
        names = {thread.name for thread in threading.enumerate()}
        assert f"agentsdir {session.id}" in names
        gate.go()
        assert execution.result.response == "one"
    wait_for(lambda: set(threading.enumerate()) <= before)
