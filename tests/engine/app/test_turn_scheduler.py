"""`TurnScheduler`: sessions by their ids, turns that return answers, and deferred work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir import AgentsdirError, Callbacks, TurnScheduler, UsageError, create_tool
from agentsdir.adapters import registry
from agentsdir.adapters.in_process import model_provider
from agentsdir.adapters.protocol import ToolCall
from agentsdir.formats.errors import NoSuchAgent, ProviderError, SessionStateError
from agentsdir.formats.store import locks
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.slots import Slots
from agentsdir.formats.store.state import SessionState

UNKNOWN = "0" * 32


@pytest.fixture(autouse=True)
def _bot() -> Iterator[None]:
    """Have a provider `bot`, which fails, calls a tool, or says what it is asked."""

    def call(request: Any) -> Any:
        text = request.content if isinstance(request.content, str) else request.content[0]["text"]
        if text == "fail":
            raise RuntimeError("as asked")
        if text == "work" and request.tick == 1:
            return [ToolCall("work", {})]
        return f"{request.model}/{request.system}: {text}"

    registry.register(model_provider("bot", call, default_model="b-1"))
    yield
    registry.unregister("bot")


def paths_of(root: Path, session_id: str) -> AgentPaths:
    """Return the agent of a session."""
    for paths in Layout(root).every_agent():
        if orjson.loads(paths.session.read_bytes())["id"] == session_id:
            return paths
    raise AssertionError(session_id)


def events(root: Path, session_id: str) -> list[str]:
    """Return what the log of a session has."""
    log = paths_of(root, session_id).log.read_bytes()
    return [orjson.loads(line)["event"] for line in log.splitlines()]


def one_slot(root: Path) -> None:
    """Give a root one slot."""
    root.mkdir()
    (root / "settings.toml").write_text("max_slots = 1\n")


@pytest.mark.feature("S-10")
def test_a_session_is_made_and_answers_by_its_id(tmp_path: Path) -> None:
    """The record is the seed's; the answer is a text; the id works in another process, too."""
    with TurnScheduler(root=tmp_path) as scheduler:
        record = scheduler.create_session("bot", "b-2", "terse")
        assert (record.state, record.provider_name, record.model) == ("created", "bot", "b-2")
        assert scheduler.send_turn(record.id, "hello") == "b-2/terse: hello"

    with TurnScheduler(root=tmp_path) as other:
        assert other.send_turn(record.id, "again") == "b-2/terse: again"
        assert other.session(record.id).state is SessionState.ACTIVE


@pytest.mark.feature("S-10")
def test_deferred_work_runs_when_the_turn_is_logged_and_its_slot_released(tmp_path: Path) -> None:
    """It comes after `turn.complete`, in the order of its deferral, and before the answer."""
    one_slot(root := tmp_path / "root")
    done: list[str] = []

    def look(name: str) -> None:
        (session_id,) = made
        assert events(root, session_id)[-1] == "message.delivered"
        assert not locks.is_held(paths_of(root, session_id).turn)
        slots = Slots(Layout(root)).entries()
        assert list(slots) == [paths_of(root, session_id).id]
        done.append(name)

    def work(_: Any) -> str:
        scheduler.defer(lambda: look("first"))
        scheduler.defer(lambda: look("second"))
        assert done == []
        return "deferred"

    schema = {"type": "object", "properties": {}}
    with TurnScheduler(root=root, tools=[create_tool("work", schema, work)]) as scheduler:
        made = [scheduler.create_session("bot").id]
        assert scheduler.send_turn(made[0], "work") == "b-1/: work"

    assert done == ["first", "second"]


@pytest.mark.feature("S-09")
def test_deferred_work_may_run_a_turn_in_the_only_slot(tmp_path: Path) -> None:
    """The parent's slot is free by then: a child that is deferred cannot wait for it for ever."""
    one_slot(root := tmp_path / "root")
    answers: list[str] = []
    with TurnScheduler(root=root) as scheduler:
        parent, child = scheduler.create_session("bot").id, scheduler.create_session("bot").id
        scheduler.defer(lambda: answers.append(scheduler.send_turn(child, "child")))
        scheduler.defer(lambda: answers.append("last"))
        answers.append(scheduler.send_turn(parent, "parent"))

    # What the first work leaves runs when the turn within it is completed.
    assert answers == ["last", "b-1/: child", "b-1/: parent"]


@pytest.mark.feature("S-11")
def test_a_turn_that_fails_has_no_deferred_work_run(tmp_path: Path) -> None:
    """Its slot is free, and the work waits for the next turn that is completed."""
    one_slot(root := tmp_path / "root")
    done: list[str] = []
    with TurnScheduler(root=root) as scheduler:
        failing, other = scheduler.create_session("bot").id, scheduler.create_session("bot").id
        scheduler.defer(lambda: done.append("work"))
        with pytest.raises(ProviderError, match="as asked"):
            scheduler.send_turn(failing, "fail")
        assert done == []
        assert events(root, failing)[-2:] == ["turn.error", "message.delivered"]

        scheduler.send_turn(other, "hi")
    assert done == ["work"]


@pytest.mark.feature("S-10")
def test_work_that_raises_is_an_error_of_its_turn_and_holds_back_the_rest(tmp_path: Path) -> None:
    """The turn is recorded; what was behind waits for the next one."""
    done: list[str] = []

    def fail() -> None:
        raise LookupError("in the work")

    with TurnScheduler(root=tmp_path) as scheduler:
        session = scheduler.create_session("bot").id
        scheduler.defer(fail)
        scheduler.defer(lambda: done.append("rest"))
        with pytest.raises(LookupError):
            scheduler.send_turn(session, "one")
        assert (events(tmp_path, session)[-1], done) == ("message.delivered", [])
        scheduler.send_turn(session, "two")
    assert done == ["rest"]


@pytest.mark.feature("S-12")
def test_a_session_that_lost_its_slot_is_restored_for_its_next_turn(tmp_path: Path) -> None:
    """The scheduler's view of a session is not stale: another session's turn suspended it."""
    one_slot(root := tmp_path / "root")
    with TurnScheduler(root=root) as scheduler:
        first, second = scheduler.create_session("bot").id, scheduler.create_session("bot").id
        scheduler.send_turn(first, "one")
        assert scheduler.session(first).state is SessionState.ACTIVE

        scheduler.send_turn(second, "two")
        assert scheduler.session(first).state is SessionState.SUSPENDED
        assert scheduler.session(first).suspended_at is not None

        assert scheduler.send_turn(first, "three") == "b-1/: three"
        assert scheduler.session(first).state is SessionState.ACTIVE
        assert scheduler.session(second).state is SessionState.SUSPENDED


@pytest.mark.feature("S-10")
def test_a_terminated_session_takes_no_turn(tmp_path: Path) -> None:
    """Not in this scheduler, and not in another one."""
    with TurnScheduler(root=tmp_path) as scheduler, TurnScheduler(root=tmp_path) as other:
        session = scheduler.create_session("bot").id
        scheduler.send_turn(session, "hi")
        other.session(session)
        scheduler.terminate_session(session)

        for one in (scheduler, other):
            assert one.session(session).state is SessionState.TERMINATED
            with pytest.raises(SessionStateError):
                one.send_turn(session, "more")
            one.terminate_session(session)


@pytest.mark.feature("S-06")
def test_recovery_suspends_what_was_active_and_sends_nothing_again(tmp_path: Path) -> None:
    """At boot no provider runs. A turn that a dead process left is ended."""
    with TurnScheduler(root=tmp_path) as scheduler:
        idle, open_ = scheduler.create_session("bot").id, scheduler.create_session("bot").id
        scheduler.send_turn(idle, "hi")
        scheduler.send_turn(open_, "hi")
        # As a process leaves it that is killed in its turn.
        log = paths_of(tmp_path, open_).log
        kept = [
            line
            for line in log.read_bytes().splitlines(keepends=True)
            if orjson.loads(line)["event"] not in ("turn.complete", "message.delivered")
        ]
        log.write_bytes(b"".join(kept))

    with TurnScheduler(root=tmp_path) as booted:
        restored = {one.agent_id: one for one in booted.recover()}

        assert [booted.session(one).state for one in (idle, open_)] == ["suspended"] * 2
        assert restored[paths_of(tmp_path, idle).id].actions == ("suspended",)
        assert "turn.aborted" in events(tmp_path, open_)
        assert events(tmp_path, open_).count("turn.start") == 1
        assert [one.actions for one in booted.recover()] == [(), ()]
        assert booted.send_turn(open_, "again") == "b-1/: again"


def test_a_turn_cannot_wait_for_a_turn_of_its_own_session(tmp_path: Path) -> None:
    """The error is there before a message is; deferred, the same call is of use."""
    said: list[Any] = []

    def work(_: Any) -> str:
        with pytest.raises(UsageError) as caught:
            scheduler.send_turn(session, "now")
        said.append(caught.value.kind)
        scheduler.defer(lambda: said.append(scheduler.send_turn(session, "later")))
        return "deferred"

    tools = [create_tool("work", {"type": "object"}, work)]
    with TurnScheduler(root=tmp_path, tools=tools) as scheduler:
        session = scheduler.create_session("bot").id
        scheduler.send_turn(session, "work")

    assert said == ["waits-for-itself", "b-1/: later"]
    assert events(tmp_path, session).count("message.enqueued") == 2


def test_callbacks_have_each_session_that_is_made(tmp_path: Path) -> None:
    """And those of its turns, as in an app."""
    made: list[str] = []
    ended: list[str] = []
    callbacks = Callbacks(
        on_session_create=lambda ref: made.append(ref.id),
        on_complete=lambda result: ended.append(result.response),
    )
    with TurnScheduler(root=tmp_path, callbacks=callbacks) as scheduler:
        sessions = [scheduler.create_session("bot").id for _ in range(2)]
        scheduler.send_turn(sessions[0], "hi")
    assert made == [paths_of(tmp_path, one).id for one in sessions]
    assert ended == ["b-1/: hi"]


def test_a_provider_may_be_one_of_the_program(tmp_path: Path) -> None:
    """It need not be registered first; the record has its name."""
    other = model_provider("other", lambda _: "of the program")
    try:
        with TurnScheduler(root=tmp_path) as scheduler:
            record = scheduler.create_session(other)
            assert record.provider_name == "other"
            assert scheduler.send_turn(record.id, "hi") == "of the program"
    finally:
        registry.unregister("other")


def test_an_unknown_session_is_an_error(tmp_path: Path) -> None:
    """In every call that names one."""
    with TurnScheduler(root=tmp_path) as scheduler:
        scheduler.create_session("bot")
        for call in (
            scheduler.session,
            scheduler.terminate_session,
            lambda one: scheduler.send_turn(one, "hi"),
        ):
            with pytest.raises(NoSuchAgent):
                call(UNKNOWN)
        with pytest.raises(AgentsdirError) as caught:
            scheduler.create_session("none-such")
        assert caught.value.kind == "no-such-adapter"


def test_turns_of_many_threads_are_all_answered(tmp_path: Path) -> None:
    """Eight threads and three sessions: each session has its turns one after the other."""
    with TurnScheduler(root=tmp_path) as scheduler, ThreadPoolExecutor(8) as pool:
        sessions = [scheduler.create_session("bot").id for _ in range(3)]
        done: list[int] = []
        for number in range(24):
            scheduler.defer(lambda number=number: done.append(number))
        asked = [(sessions[number % 3], f"number {number}") for number in range(24)]
        answers = list(pool.map(lambda one: scheduler.send_turn(*one), asked))

    assert answers == [f"b-1/: number {number}" for number in range(24)]
    assert sorted(done) == list(range(24))
    assert [events(tmp_path, one).count("turn.complete") for one in sessions] == [8, 8, 8]
