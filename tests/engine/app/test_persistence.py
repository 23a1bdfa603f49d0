"""Sessions saved after each turn, and restored: what a store, a runner and callbacks see of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from commands import until
from gates import LONG, wait_for

from agentsdir import (
    AgentConfig,
    AgentsdirError,
    App,
    Callbacks,
    ExecutionRunner,
    FileSessionStore,
    Invalid,
    ModelRequest,
    NoSuchAgent,
    SessionStateError,
    ToolCall,
    model_provider,
)
from agentsdir.adapters import registry
from agentsdir.engine.close import archive_agent, remove_agent
from agentsdir.engine.lookup import find_agent
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import read_records

ECHO = AgentConfig(provider="echo")


class Repl(ExecutionRunner):
    """The seed's runner: it drops the tools' schemas and carries out `execute` itself."""

    name = "repl"

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.calls: list[str] = []

    def prepare_model_input(self, model_input: ModelRequest, tools: Any) -> ModelRequest:
        """Drop the tools' schemas."""
        self.calls.append("prepare")
        return model_input._replace(tools=())

    def execute_tool_call(self, call: ToolCall, tool: Any, next: Any) -> Any:  # noqa: A002
        """Run the code of `execute`."""
        self.calls.append(f"tool {call.name}")
        if call.name != "execute":
            return next()
        exec(call.input["code"], self.names)
        return self.names.get("result")

    def on_session_init(self, session: Any) -> None:
        """Count the call."""
        self.calls.append("init")

    def on_persist(self, session: Any, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Keep the numbers."""
        self.calls.append("persist")
        kept = {name: value for name, value in self.names.items() if isinstance(value, int)}
        return {**snapshot, "runner": kept}

    def on_restore(self, session: Any, snapshot: dict[str, Any]) -> None:
        """Take them back."""
        self.calls.append("restore")
        self.names.update(snapshot["runner"])

    def on_destroy(self, session: Any) -> None:
        """Count the call."""
        self.calls.append("destroy")


def calls_execute(request: ModelRequest) -> Any:
    """Call `execute` with the prompt as its code, and then say what it gave."""
    if request.results:
        return f"{request.results[-1]['output']} of {len(request.tools)} tools"
    return [ToolCall("execute", {"code": request.content})]


@pytest.fixture
def model() -> Any:
    """Return a provider whose model calls `execute`."""
    yield model_provider("repl-model", calls_execute)
    registry.unregister("repl-model")


@pytest.fixture
def store(tmp_path: Path) -> FileSessionStore:
    """Return a store beside the root."""
    return FileSessionStore(tmp_path / "store")


@pytest.mark.feature("A-08")
def test_each_method_of_a_runner_is_called_as_often_as_the_seed_says(
    tmp_path: Path, store: FileSessionStore, model: Any
) -> None:
    """Init once, prepare for each model call, persist after each send, destroy at the close."""
    runner = Repl()
    with App(
        AgentConfig(provider=model), root=tmp_path / "root", runner=runner, store=store
    ) as app:
        session = app.session("repl")
        assert session.send("x = 20; result = x").result.response == "20 of 0 tools"
        until(lambda: not session.executions, "the session is saved")
        assert session.send("result = x + 1").result.response == "21 of 0 tools"
        session.close()

    turn = ["prepare", "tool execute", "prepare", "persist"]
    assert runner.calls == ["init", *turn, *turn, "destroy"]


@pytest.mark.feature("A-08", "A-10")
def test_what_a_runner_keeps_survives_in_another_app(
    tmp_path: Path, store: FileSessionStore, model: Any
) -> None:
    """The store has it, the runner gets it back once, and the log says so."""
    root = tmp_path / "root"
    with App(AgentConfig(provider=model), root=root, runner=Repl(), store=store) as app:
        app.session("repl").send("x = 20").wait()

    runner = Repl()
    with App(AgentConfig(provider=model), root=root, runner=runner, store=store) as app:
        session = app.session("repl")
        assert app.session("repl") is session
        assert session.send("result = x + 1").result.response == "21 of 0 tools"
        log = session.paths.log

    assert runner.calls[:2] == ["restore", "prepare"]
    events = [record.event for record in read_records(log)]
    assert (events.count("runner.initialized"), events.count("runner.restored")) == (1, 1)


@pytest.mark.feature("A-09")
def test_a_failure_to_save_is_recorded_and_blocks_nothing(tmp_path: Path) -> None:
    """The turn has its answer; the log says that the session was not saved, and why."""

    class Broken(FileSessionStore):
        def save(self, session_id: str, snapshot: dict[str, Any]) -> None:
            raise OSError("no space")

    with App(ECHO, root=tmp_path, store=Broken(tmp_path / "store")) as app:
        session = app.session()
        assert session.send("hello").result.response == "hello"

    # Once after the turn, and once when the app is closed.
    failed = [one.data for one in read_records(session.paths.log) if one.event == "hook.failed"]
    assert failed == 2 * [{"hook": "persist", "message": "the session was not saved: no space"}]


@pytest.mark.parametrize("take_away", [remove_agent, archive_agent])
def test_a_session_that_another_process_takes_away_leaves_the_others_alone(
    tmp_path: Path, store: FileSessionStore, take_away: Any
) -> None:
    """It is not saved when it is put out of memory for another one."""
    with App(ECHO, root=tmp_path / "root", store=store, max_active=1) as app:
        session = app.session("one")
        session.send("hello").wait()
        wait_for(lambda: not session.executions)
        session.set_state(changed=True)
        take_away(app.services(), session.paths)

        assert app.session("two").send("hello").result.response == "hello"
        assert [one.name for one in app.sessions] == ["two"]
        assert app.session("one").id != session.id


def test_a_session_that_is_gone_at_the_end_of_its_turn_is_not_saved(
    tmp_path: Path, store: FileSessionStore
) -> None:
    """Its folder is removed while the turn runs: the turn fails, and has ended."""

    def take(event: Any) -> None:
        if event["type"] == "text_delta":
            shutil.rmtree(session.paths.folder)

    with App(ECHO, root=tmp_path / "root", store=store) as app:
        session = app.session(callbacks=Callbacks(on_event=take))
        with pytest.raises(AgentsdirError):
            session.send("hello").wait(LONG)
        wait_for(lambda: not session.executions)
    assert store.list() == []


def test_a_store_that_exits_ends_no_thread(tmp_path: Path) -> None:
    """It is a failure to save."""

    class Exits(FileSessionStore):
        def save(self, session_id: str, snapshot: dict[str, Any]) -> None:
            raise SystemExit(3)

    with App(ECHO, root=tmp_path, store=Exits(tmp_path / "store")) as app:
        session = app.session()
        assert session.send("hello").result.response == "hello"
        wait_for(lambda: not session.executions)
    assert session.status == "idle"


@pytest.mark.parametrize("callback", ["on_before_persist", "on_after_persist"])
def test_a_callback_of_a_save_may_save_the_session(
    tmp_path: Path, store: FileSessionStore, callback: str
) -> None:
    """The save that runs has it; the call does nothing."""

    def saves(session: Any, _snapshot: Any) -> None:
        session.persist()

    callbacks = Callbacks(**{callback: saves})
    with App(ECHO, root=tmp_path / "root", store=store, callbacks=callbacks) as app:
        session = app.session("one")
        assert session.send("hello").result.response == "hello"
        wait_for(lambda: not session.executions)
    assert store.list() == ["one"]


@pytest.mark.feature("A-10")
def test_a_session_that_the_root_lacks_is_made_of_its_snapshot(
    tmp_path: Path, store: FileSessionStore
) -> None:
    """Timeline, state and data come back in another root (layer 1 of the seed)."""
    with App(ECHO, root=tmp_path / "here", store=store) as app:
        session = app.session("user-123")
        session.send("good morning").wait()
        session.set_state(mood="calm")
        session.set_data(weather={"sun": True})
        before = [block["content"] for block in session.timeline.entries]

    with App(ECHO, root=tmp_path / "there", store=store) as app:
        again = app.session("user-123")

        assert [block["content"] for block in again.timeline.entries] == before
        assert (again.state, again.data) == ({"mood": "calm"}, {"weather": {"sun": True}})


@pytest.mark.feature("A-10")
def test_resolve_takes_the_place_of_applying_and_gets_the_snapshot(
    tmp_path: Path, store: FileSessionStore
) -> None:
    """Layer 2: nothing is applied, and each function's value is there by its key."""
    with App(ECHO, root=tmp_path / "here", store=store) as app:
        app.session("user-123").set_state(mood="calm")

    resolve = {"mood": lambda given: given.snapshot and given.snapshot["comState"]["mood"]}
    with App(ECHO, root=tmp_path / "there", store=store, resolve=resolve) as app:
        again, other = app.session("user-123"), app.session("another")

        assert (again.resolved("mood"), other.resolved("mood")) == ("calm", None)
        assert (again.state, again.timeline.entries) == ({}, [])


@pytest.mark.feature("A-07")
def test_a_restore_that_is_cancelled_leaves_nothing(
    tmp_path: Path, store: FileSessionStore
) -> None:
    """The session is not made, and the one in another root is as it was."""
    with App(ECHO, root=tmp_path / "here", store=store) as app:
        app.session("user-123").send("hello").wait()

    no = Callbacks(on_before_restore=lambda _id, _snapshot: False)
    with App(ECHO, root=tmp_path / "there", store=store, callbacks=no) as app:
        with pytest.raises(SessionStateError) as refused:
            app.session("user-123")
        assert refused.value.kind == "cancelled"
    with pytest.raises(NoSuchAgent):
        find_agent(Layout(tmp_path / "there"), "user-123")


@pytest.mark.feature("A-07")
def test_a_migration_is_recorded_as_far_as_it_changes_the_session(
    tmp_path: Path, store: FileSessionStore
) -> None:
    """What a callback changes of an older snapshot is what the log gets; the rest stands."""
    with App(ECHO, root=tmp_path, store=store) as app:
        app.session("user-123").set_state(mood="calm", level=1)

    def migrate(_id: str, snapshot: dict[str, Any]) -> dict[str, Any]:
        return {**snapshot, "comState": {"mood": "calm", "rank": 1}}

    with App(
        ECHO, root=tmp_path, store=store, callbacks=Callbacks(on_before_restore=migrate)
    ) as app:
        session = app.session("user-123")
        assert session.state == {"mood": "calm", "rank": 1}
        changes = [one.data for one in read_records(session.paths.log) if one.event == "data.set"]

    assert changes[-1] == {"scope": "com", "values": {"level": None, "rank": 1}}


def test_a_snapshot_of_another_version_is_refused_and_nothing_is_made(
    tmp_path: Path, store: FileSessionStore
) -> None:
    """The error says which versions there are."""
    store.save("user-123", {"version": 99})

    with App(ECHO, root=tmp_path / "root", store=store) as app, pytest.raises(Invalid) as refused:
        app.session("user-123")

    assert refused.value.kind == "bad-snapshot"
    assert "99" in refused.value.message


class Counter(ExecutionRunner):
    """A runner that counts the model calls of its session, and of what that spawns."""

    name = "counter"
    made = 0

    def __init__(self) -> None:
        Counter.made += 1
        self.count = 0

    def prepare_model_input(self, model_input: ModelRequest, tools: Any) -> ModelRequest:
        """Count, and tell the model."""
        self.count += 1
        return model_input._replace(system=f"call {self.count}")

    def on_persist(self, session: Any, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Save the count."""
        return {**snapshot, "count": self.count}

    def on_restore(self, session: Any, snapshot: dict[str, Any]) -> None:
        """Take the count back."""
        self.count = snapshot["count"]


@pytest.mark.feature("A-08")
def test_a_class_of_runners_makes_one_for_each_session(tmp_path: Path) -> None:
    """Its children share it; another session has another; each is saved and restored by itself."""
    Counter.made = 0
    agent = AgentConfig(provider=model_provider("counted", lambda request: request.system))
    store = FileSessionStore(tmp_path / "store")
    with App(agent, root=tmp_path / "agents", runner=Counter, store=store) as app:
        ada, bob = app.session("ada"), app.session("bob")
        assert [ada.send("hi").result.response for _ in range(2)] == ["call 1", "call 2"]
        assert ada.spawn(agent, "hi").result.response == "call 3"
        assert bob.send("hi").result.response == "call 1"
        assert app.session("ada") is ada
        assert app.run("hi").result.response == "call 1"
        assert Counter.made == 3

    with App(agent, root=tmp_path / "agents", runner=Counter, store=store) as app:
        assert app.session("ada").send("hi").result.response == "call 4"
        assert app.session("bob").send("hi").result.response == "call 2"
