"""The seed `app-and-session` in Python: its examples, in its order, and each of its tables.

The text that begins a docstring is the heading of the seed under which an example stands.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import agentsdir
from agentsdir import (
    AgentConfig,
    App,
    Call,
    Callbacks,
    Execution,
    ExecutionRunner,
    ModelRequest,
    Next,
    Session,
    SessionRef,
    SessionStateError,
    Tool,
    ToolCall,
    ToolContext,
    TurnResult,
    create_tool,
    element,
    model_provider,
    write_script,
)

SEED = Path(__file__).parents[3] / "shared/seeds/app-and-session.md"
ECHO = AgentConfig(provider="echo")
HELLO = {"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]}


def my_agent(system: str = "You are helpful.") -> AgentConfig:
    """Stand for `MyAgent`."""
    return AgentConfig(provider="echo", system=system)


def script(tmp_path: Path, *turns: Any) -> dict[str, str]:
    """Return the options of an agent whose model is a script."""
    return {"file": write_script(tmp_path / "model.jsonl", *turns)}


def snake(name: str) -> str:
    """Return a name of the seed as Python writes it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """Have an app of `MyAgent`."""
    with App(my_agent, root=tmp_path / "agents") as made:
        yield made


# Overview


@pytest.mark.feature("A-01")
def test_overview(app: App) -> None:
    """Overview: an app makes sessions, runs one prompt without, and has those in memory."""
    session = app.session()
    assert app.run("hello").result.response == "hello"  # ephemeral
    assert [*app.sessions] == [session]


# Session


@pytest.mark.feature("A-01")
def test_creating_sessions(app: App) -> None:
    """Creating Sessions: one with an id that is made, and one that is there or is made."""
    session = app.session()
    again = app.session("user-123")

    assert session.id != again.id
    assert app.session("user-123") is again
    assert app.session(session.id) is session


METHODS = {
    "send": "SessionExecutionHandle",
    "render": "SessionExecutionHandle",
    "queue": "void",
    "spawn": "SessionExecutionHandle",
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "send": (HELLO,),
    "render": ({"system": "You are terse."},),
    "queue": (HELLO,),
    "spawn": (my_agent, HELLO),
}


@pytest.mark.feature("A-02")
@pytest.mark.parametrize("method", METHODS)
def test_session_methods_all_procedures(app: App, method: str) -> None:
    """Session Methods (All Procedures): middleware, context and time limit, and what each returns.

    `queue` returns the id of the message, which the seed leaves away.
    """
    session = app.session("user-123")
    seen: list[tuple[str, dict[str, Any]]] = []

    def logging(call: Call, next_: Next) -> Any:
        seen.append((call.procedure, dict(call.context)))
        return next_(call)

    session.queue("so that there is something to render")
    call = getattr(session, method).use(logging).with_context(trace="t-1").with_timeout(60)
    done = call(*ARGUMENTS[method])

    if METHODS[method] == "void":
        assert session.queued_messages[-1]["messageId"] == done
    else:
        assert isinstance(done, Execution)
        assert isinstance(done.result, TurnResult)
    assert seen == [(method, {"trace": "t-1"})]


@pytest.mark.feature("A-02")
def test_session_methods(app: App) -> None:
    """Session Methods (All Procedures): direct execution, its result, and with middleware."""
    session = app.session()
    said: list[str] = []

    def logging_middleware(call: Call, next_: Next) -> Any:
        said.append("before")
        result = next_(call)
        said.append(result.response)
        return result

    # Direct execution
    handle = session.send(HELLO)
    assert [event["type"] for event in handle][-1] == "metadata_update"

    # Unwrap to final result
    result = session.send(HELLO).result
    assert result.response == "hello"

    # With middleware
    result = session.send.use(logging_middleware)(HELLO).result
    assert (said, result.response) == (["before", "hello"], "hello")


PROPERTIES = {
    "id": str,
    "status": str,
    "parent": Session | None,
    "children": tuple,
    "isAborted": bool,
    "queuedMessages": list,
}


@pytest.mark.feature("A-03")
def test_session_properties(app: App, tmp_path: Path) -> None:
    """Session Properties: each is there, before, while and after a turn runs."""
    session = app.session()
    for name, kind in PROPERTIES.items():
        assert isinstance(getattr(session, snake(name)), kind), name
    before = {name: getattr(session, snake(name)) for name in PROPERTIES}
    assert before == {
        "id": session.id,
        "status": "idle",
        "parent": None,
        "children": (),
        "isAborted": False,
        "queuedMessages": [],
    }

    slow = AgentConfig(
        provider="script", options=script(tmp_path, [{"type": "sleep", "seconds": 60}])
    )
    child = session.spawn(slow, "wait")
    next(iter(child))
    assert child.child is not None
    assert session.children == (child.child,)
    assert child.child.parent is session
    assert child.child.status == "running"
    child.abort()
    child.wait_until_done()
    assert session.children == ()

    session.queue("later")
    assert [one["content"][0]["text"] for one in session.queued_messages] == ["later"]
    session.close()
    assert session.status == "closed"


@pytest.mark.feature("A-04")
def test_session_lifecycle(tmp_path: Path) -> None:
    """Session Lifecycle: interrupt with a message and a reason, clear, snapshot, inspect, close."""
    slow = script(tmp_path, [{"type": "sleep", "seconds": 60}], ["at last"])
    with App(AgentConfig(provider="script", options=slow), root=tmp_path / "agents") as app:
        session = app.session("user-123")
        execution = session.send("hello")
        next(iter(execution))
        assert session.interrupt("and then this", "enough") is True
        with pytest.raises(agentsdir.Interruption):
            execution.wait()
        assert len(session.queued_messages) == 1
        assert session.clear_abort() is False  # the turn has heeded it

        assert session.render().result.response == "at last"
        assert session.snapshot()["timeline"][-1]["content"] == "at last"
        assert session.inspect().last_output == "at last"
        session.close()
        assert session.status == "closed"


# Spawn


def child_agent(query: str = "anything") -> AgentConfig:
    """Stand for `ChildAgent` and `Researcher`."""
    return AgentConfig(provider="echo", system=f"You look for {query}.")


@pytest.mark.feature("A-05")
def test_three_input_forms(app: App) -> None:
    """Three Input Forms: a component function, a configuration, an element with props."""
    session = app.session()

    # 1. Component function
    one = session.spawn(child_agent, HELLO)
    # 2. AgentConfig
    two = session.spawn(AgentConfig(provider="echo", system="You are a summarizer."), HELLO)
    # 3. Element (props merged with those of the input)
    three = session.spawn(element(child_agent, query="quantum"), HELLO)

    assert [handle.result.response for handle in (one, two, three)] == ["hello"] * 3


@pytest.mark.feature("A-05")
def test_from_tool_handlers(tmp_path: Path) -> None:
    """From Tool Handlers: a tool spawns a specialist and returns what it says."""

    def handler(given: dict[str, Any], context: ToolContext) -> Any:
        handle = context.spawn(
            my_agent,
            {"messages": [{"role": "user", "content": [{"type": "text", "text": given["task"]}]}]},
        )
        return [{"type": "text", "text": handle.result.response}]

    delegate = create_tool(
        "delegate",
        {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]},
        handler,
    )
    options = script(tmp_path, [ToolCall("delegate", {"task": "think"}), "thought"])
    agent = AgentConfig(provider="script", options=options, tools=[delegate])
    with App(agent, root=tmp_path / "agents") as app:
        execution = app.session().send("go")
        assert execution.result.response == "thought"
        assert results_of(execution) == [[{"type": "text", "text": "think"}]]


def results_of(execution: Execution) -> list[Any]:
    """Return the outputs of the tool calls of a turn, in the order of the events."""
    blocks = [event["block"] for event in execution if event["type"] == "block_complete"]
    return [one["output"] for one in blocks if one["type"] == "tool_result"]


@pytest.mark.feature("A-05")
def test_parallel_spawns(app: App) -> None:
    """Parallel Spawns: two children run at once."""
    meeting = threading.Barrier(2, timeout=30)

    def met(request: ModelRequest) -> str:
        meeting.wait()  # breaks unless both are there
        return request.system

    model = model_provider("meeting", met)
    session = app.session()
    one = session.spawn(AgentConfig(provider=model, system="A"), HELLO)
    two = session.spawn(AgentConfig(provider=model, system="B"), HELLO)
    assert [one.result.response, two.result.response] == ["A", "B"]


class Renaming(ExecutionRunner):
    """A runner that tells in the system prompt which one it is."""

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare_model_input(self, model_input: ModelRequest, tools: Any) -> ModelRequest:
        """Say the name."""
        return model_input._replace(system=self.name)


def telling(request: ModelRequest) -> Iterator[str | ToolCall]:
    """Answer with the model, the system prompt and the number of the call, and call on."""
    yield f"{request.model} {request.system} {request.tick}\n"
    yield ToolCall("again", {})


AGAIN = create_tool("again", {"type": "object"}, lambda _: "again")

SPAWN_OPTIONS: dict[str, tuple[Any, str]] = {
    "model": ("cheap", "cheap parent 1\n\ncheap parent 2"),
    "runner": (Renaming("child"), "dear child 1\n\ndear child 2"),
    "maxTicks": (1, "dear parent 1"),
}


@pytest.mark.feature("A-05")
@pytest.mark.parametrize("option", SPAWN_OPTIONS)
def test_spawn_options(tmp_path: Path, option: str) -> None:
    """SpawnOptions: each overrides what the child has of its parent."""
    value, said = SPAWN_OPTIONS[option]
    agent = AgentConfig(provider=model_provider(f"telling-{option}", telling), tools=[AGAIN])
    with App(agent, root=tmp_path, model="dear", max_ticks=2, runner=Renaming("parent")) as app:
        handle = app.session().spawn(agent, HELLO, **{snake(option): value})
        lines = said_by(handle)
    assert "\n\n".join(lines) == said


def said_by(execution: Execution) -> list[str]:
    """Return the texts of a turn, however it ended."""
    blocks = [event["block"] for event in execution if event["type"] == "block_complete"]
    return [one["content"].strip() for one in blocks if one["type"] == "assistant_text"]


@pytest.mark.feature("A-05", "A-06")
def test_spawn_behavior(tmp_path: Path) -> None:
    """Spawn Behavior: isolation, no callbacks, the runner, cleanup, not in the registry."""
    called: list[str] = []
    callbacks = Callbacks(
        on_complete=lambda result: called.append(result.response),
        on_tick_start=lambda tick, _: called.append(f"tick {tick}"),
    )
    seen: list[Any] = []

    def model(request: ModelRequest) -> str:
        seen.append(([one["type"] for one in request.timeline()], request.system))
        return "child"

    agent = AgentConfig(provider=model_provider("isolated", model))
    with App(ECHO, root=tmp_path, callbacks=callbacks, runner=Renaming("sandbox")) as app:
        session = app.session()
        handle = session.spawn(agent, HELLO)
        assert isinstance(handle, Execution)
        assert handle.result.response == "child"
        assert handle.child is not None

        assert seen == [(["user_message"], "sandbox")]  # a conversation of its own; the runner
        assert called == []  # callback isolation
        assert session.children == ()  # cleanup
        assert [*app.sessions] == [session]  # ephemeral
        assert handle.child.status == "closed"


@pytest.mark.feature("A-06")
@pytest.mark.parametrize("end", ["abort", "close"])
def test_spawn_behavior_abort_and_close_propagation(tmp_path: Path, end: str) -> None:
    """Spawn Behavior: what ends the parent ends its children."""
    slow = AgentConfig(
        provider="script", options=script(tmp_path, [{"type": "sleep", "seconds": 60}])
    )
    started = threading.Event()

    def handler(_given: Any, context: ToolContext) -> str:
        child = context.spawn(slow, "wait")
        next(iter(child))
        started.set()
        return str(child.result.response)

    options = {"file": write_script(tmp_path / "parent.jsonl", [ToolCall("delegate", {}), "no"])}
    tool = create_tool("delegate", {"type": "object"}, handler)
    agent = AgentConfig(provider="script", options=options, tools=[tool])
    with App(agent, root=tmp_path / "agents") as app:
        session = app.session()
        execution = session.send("go")
        assert started.wait(30)
        (child,) = session.children
        if end == "abort":
            execution.abort()
        else:
            session.close()
        with pytest.raises(agentsdir.Interruption):
            execution.wait()
        assert child.status == "closed"
        assert session.children == ()


@pytest.mark.feature("A-06")
def test_spawn_behavior_depth_limit(tmp_path: Path) -> None:
    """Spawn Behavior: at most ten levels; one more is an error."""
    depths: list[int] = []
    errors: list[BaseException] = []

    def handler(given: dict[str, Any], context: ToolContext) -> str:
        depths.append(given["depth"])
        try:
            return str(context.spawn(agent(given["depth"] + 1), "deeper").result.response)
        except agentsdir.AgentsdirError as error:
            errors.append(error)
            return "the end"

    dig = create_tool("dig", {"type": "object"}, handler)

    def agent(depth: int) -> AgentConfig:
        def model(request: ModelRequest) -> Any:
            return "done" if request.results else [ToolCall("dig", {"depth": depth})]

        return AgentConfig(provider=model_provider(f"digger-{depth}", model), tools=[dig])

    with App(agent(0), root=tmp_path) as app:
        assert app.session().send("dig").result.response == "done"
    assert depths == [*range(11)]
    assert [type(error) for error in errors] == [SessionStateError]


# Lifecycle Callbacks

LIFECYCLE = ("onEvent", "onTickStart", "onTickEnd", "onComplete", "onError")
MORE = (
    "onBeforeSend",
    "onAfterSend",
    "onToolConfirmation",
    "onSessionCreate",
    "onSessionClose",
    "onBeforePersist",
    "onAfterPersist",
    "onBeforeRestore",
    "onAfterRestore",
)


@pytest.mark.feature("A-07")
def test_lifecycle_callbacks_are_those_of_the_seed() -> None:
    """Lifecycle Callbacks: the same names, and no others."""
    assert [field.name for field in fields(Callbacks)] == [snake(name) for name in LIFECYCLE + MORE]


class MemoryStore:
    """A store of snapshots in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}

    def save(self, session_id: str, snapshot: dict[str, Any]) -> None:
        """Keep a snapshot."""
        self.kept[session_id] = snapshot

    def load(self, session_id: str) -> dict[str, Any] | None:
        """Return a snapshot."""
        return self.kept.get(session_id)

    def delete(self, session_id: str) -> None:
        """Forget a snapshot."""
        self.kept.pop(session_id, None)

    def list(self) -> list[str]:
        """Return the ids."""
        return sorted(self.kept)

    def has(self, session_id: str) -> bool:
        """Return whether there is one."""
        return session_id in self.kept


@pytest.mark.feature("A-07")
@pytest.mark.parametrize("per", ["app", "session"])
def test_lifecycle_callbacks(tmp_path: Path, per: str) -> None:
    """Lifecycle Callbacks: each fires when the seed says, of the app or of one session."""
    fired: list[str] = []

    def noting(name: str) -> Callable[..., None]:
        return lambda *_: fired.append(name)

    callbacks = Callbacks(
        **{name: noting(name) for name in map(snake, LIFECYCLE + MORE)},  # type: ignore[arg-type]
    )
    given = {"callbacks": callbacks} if per == "app" else {}
    asked = {} if per == "app" else {"callbacks": callbacks}
    tool = create_tool("pay", {"type": "object"}, lambda _: "paid", requires_confirmation=True)
    failing = agentsdir.ProviderError("no")
    options = script(tmp_path, [ToolCall("pay", {}), "done"], [failing])
    agent = AgentConfig(provider="script", options=options, tools=[tool])
    store = MemoryStore()
    with App(agent, root=tmp_path / "agents", store=store, **given) as app:
        session = app.session("user-123", **asked)
        session.send("hello").wait()
        assert until(lambda: not session.executions)  # it is saved
        app.sessions.forget(session)
        again = app.session("user-123", **asked)
        with pytest.raises(agentsdir.ProviderError):
            again.send("hello").wait()
        again.close()

    once = [name for name in dict.fromkeys(fired) if name != "on_event"]
    assert once == [
        "on_session_create",
        "on_before_send",
        "on_tick_start",
        "on_tool_confirmation",
        "on_tick_end",
        "on_complete",
        "on_after_send",
        "on_before_persist",
        "on_after_persist",
        "on_before_restore",
        "on_after_restore",
        "on_error",
        "on_session_close",
    ]
    assert "on_event" in fired


@pytest.mark.feature("A-07")
def test_lifecycle_callbacks_that_change_or_cancel(tmp_path: Path) -> None:
    """Lifecycle Callbacks: the input of a send is changed, a save and a restore are cancelled."""
    store = MemoryStore()
    callbacks = Callbacks(
        on_before_send=lambda _, content: [{"type": "text", "text": "changed"}],
        on_before_persist=lambda _, snapshot: {**snapshot, "by": "the callback"},
        on_before_restore=lambda _, snapshot: False if "by" in snapshot else None,
    )
    with App(ECHO, root=tmp_path, store=store, callbacks=callbacks) as app:
        session = app.session("user-123")
        assert session.send("hello").result.response == "changed"
        assert until(lambda: not session.executions)
        assert [kept["by"] for kept in store.kept.values()] == ["the callback"]
        app.sessions.forget(session)
        with pytest.raises(SessionStateError) as cancelled:
            app.session("user-123")
        assert cancelled.value.kind == "cancelled"


# Execution Runner


class Repl(ExecutionRunner):
    """The runner of the seed, which notes what it is called for."""

    name = "repl"

    def __init__(self) -> None:
        self.called: list[str] = []
        self.sessions: list[SessionRef] = []
        self.state: dict[str, Any] = {}

    def prepare_model_input(self, model_input: ModelRequest, tools: Any) -> ModelRequest:
        """Remove the schemas of the tools."""
        self.called.append("prepareModelInput")
        return model_input._replace(tools=())

    def execute_tool_call(
        self,
        call: ToolCall,
        tool: Tool | None,
        next: Callable[[], Any],  # noqa: A002
    ) -> Any:
        """Run `execute` in the sandbox."""
        self.called.append("executeToolCall")
        if call.name == "execute":
            self.state["ran"] = [*self.state.get("ran", []), call.input["code"]]
            return f"ran {call.input['code']}"
        return next()  # delegate to normal execution

    def on_session_init(self, session: SessionRef) -> None:
        """Set up the sandbox."""
        self.called.append("onSessionInit")
        self.sessions.append(session)

    def on_persist(self, session: SessionRef, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Add the state of the runner."""
        self.called.append("onPersist")
        return {**snapshot, "repl": self.state}

    def on_restore(self, session: SessionRef, snapshot: dict[str, Any]) -> None:
        """Restore the state of the runner."""
        self.called.append("onRestore")
        self.state = snapshot["repl"]

    def on_destroy(self, session: SessionRef) -> None:
        """Clean up."""
        self.called.append("onDestroy")


def coding(asked: list[tuple[str, ...]]) -> Callable[[ModelRequest], Any]:
    """Return a model that calls `execute` and `add`, and then says what they gave."""

    def model(request: ModelRequest) -> Any:
        asked.append(tuple(one.name for one in request.tools))
        if request.results:
            return " and ".join(str(one["output"]) for one in request.results)
        return [ToolCall("execute", {"code": "6 * 7"}), ToolCall("add", {"a": 1, "b": 2})]

    return model


ADD = create_tool("add", {"type": "object"}, lambda given: given["a"] + given["b"])


@pytest.mark.feature("A-08")
def test_execution_runner(tmp_path: Path) -> None:
    """Execution Runner: schemas are removed, `execute` runs in the sandbox, others go on."""
    asked: list[tuple[str, ...]] = []
    runner = Repl()
    agent = AgentConfig(provider=model_provider("coding", coding(asked)), tools=[ADD])
    with App(agent, root=tmp_path, runner=runner) as app:
        assert app.session().send("go").result.response == "ran 6 * 7 and 3"
    assert asked == [(), ()]


@pytest.mark.feature("A-08")
def test_execution_runner_is_given_a_session_ref(tmp_path: Path) -> None:
    """Execution Runner: lifecycle hooks have id, status, current tick and snapshot."""
    names = {name for name in vars(SessionRef) if not name.startswith("_")}
    assert names == {"id", "status", "current_tick", "snapshot"}

    runner = Repl()
    agent = AgentConfig(provider=model_provider("coding-ref", coding([])), tools=[ADD])
    with App(agent, root=tmp_path, runner=runner) as app:
        session = app.session()
        session.send("go").wait()
        (ref,) = runner.sessions
        assert (ref.id, ref.status, ref.current_tick) == (session.id, "idle", 2)
        assert ref.snapshot()["tick"] == 2


TIMING = {
    "onSessionInit": 1,  # once
    "prepareModelInput": 4,  # per tick: two sends of two model calls
    "executeToolCall": 4,  # per tool call: two of each send
    "onPersist": 2,  # per send
    "onRestore": 1,  # once
    "onDestroy": 1,  # once
}


@pytest.mark.feature("A-08")
def test_hook_timing(tmp_path: Path) -> None:
    """Hook Timing: each as often as the table says, of a session that is restored in between."""
    first, second = Repl(), Repl()
    agent = AgentConfig(provider=model_provider("coding-timing", coding([])), tools=[ADD])
    store = MemoryStore()
    with App(agent, root=tmp_path, runner=first, store=store) as app:
        session = app.session("user-123")
        session.send("go").wait()
        assert until(lambda: not session.executions)
        (snapshot,) = store.kept.values()
        assert snapshot["repl"] == {"ran": ["6 * 7"]}
    with App(agent, root=tmp_path, runner=second, store=store) as app:
        session = app.session("user-123")
        session.send("go").wait()
        session.close()
    called = [*first.called, *second.called]
    assert {name: called.count(name) for name in dict.fromkeys(called)} == TIMING
    assert first.called[0] == "onSessionInit"
    assert (second.called[0], second.called[-1]) == ("onRestore", "onDestroy")
    assert second.state == {"ran": ["6 * 7", "6 * 7"]}


# Persistence


@pytest.mark.feature("A-09")
def test_auto_persist(tmp_path: Path) -> None:
    """Auto-Persist: after each execution; what fails is recorded, and blocks nothing."""
    store = MemoryStore()
    with App(ECHO, root=tmp_path, store=store) as app:
        session = app.session("user-123")
        for number, text in enumerate(("one", "two"), 1):
            session.send(text).wait()
            assert until(lambda: not session.executions)
            assert [kept["tick"] for kept in store.kept.values()] == [number]

        store.save = fails  # type: ignore[method-assign]
        assert session.send("three").result.response == "three"
        assert until(lambda: not session.executions)
        failures = [
            one for one in session.paths.log.read_bytes().split(b"\n") if b"hook.failed" in one
        ]
        assert len(failures) == 1


def fails(*_: Any) -> None:
    """Stand for a disk that is full."""
    raise OSError("no space left")


@pytest.mark.feature("A-10")
def test_auto_restore(tmp_path: Path) -> None:
    """Auto-Restore: the snapshot is loaded, migrated, applied, and reported."""
    store = MemoryStore()
    with App(ECHO, root=tmp_path / "one", store=store) as app:
        session = app.session("user-123")
        session.set_state(mood="good")
        session.set_data(weather="rain")
        session.send("hello").wait()

    said: list[str] = []

    def migrate(session_id: str, snapshot: dict[str, Any]) -> dict[str, Any]:
        said.append("before")
        return {**snapshot, "comState": {"mood": "better"}}

    callbacks = Callbacks(
        on_before_restore=migrate, on_after_restore=lambda *_: said.append("after")
    )
    # Another machine, which has the store, and not the log.
    with App(ECHO, root=tmp_path / "two", store=store, callbacks=callbacks) as app:
        session = app.session("user-123")
        assert said == ["before", "after"]
        assert (session.state, session.data) == ({"mood": "better"}, {"weather": "rain"})
        assert [one["content"] for one in session.timeline()] == ["hello", "hello"]


@pytest.mark.feature("A-10")
def test_auto_restore_layer_2_resolve(tmp_path: Path) -> None:
    """Auto-Restore, layer 2 (resolve): nothing is applied; what resolve makes can be asked for."""
    store = MemoryStore()
    with App(ECHO, root=tmp_path / "one", store=store) as app:
        session = app.session("user-123")
        session.set_state(mood="good")
        session.send("hello").wait()

    def component(session: Session | None) -> AgentConfig:
        mood = session.resolved("mood") if session else "new"
        return AgentConfig(provider="echo", system=f"You feel {mood}.")

    resolve = {"mood": lambda given: given.snapshot["comState"]["mood"].upper()}
    with App(component, root=tmp_path / "two", store=store, resolve=resolve) as app:
        session = app.session("user-123")
        assert session.resolved("mood") == "GOOD"
        assert (session.state, session.timeline()) == ({}, [])


@pytest.mark.feature("A-11")
def test_session_registry(tmp_path: Path) -> None:
    """Session Registry: the one used longest ago is put out, and saved first; idle ones too."""
    store = MemoryStore()
    with App(ECHO, root=tmp_path, store=store, max_active=2) as app:
        one = app.session("one")
        app.session("two")
        one.queue("used")
        app.session("three")
        assert [session.name for session in app.sessions] == ["one", "three"]
        assert store.list() == ["two"]
        assert app.session("one") is one

    with App(ECHO, root=tmp_path, idle_timeout=0.001) as app:
        app.session("one")
        assert until(lambda: len(app.sessions) == 0)
    sweeps = [one for one in threading.enumerate() if "sweep" in repr(one) and not one.daemon]
    assert sweeps == []  # no timer keeps the process alive


def until(condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds, at most half a minute."""
    for _ in range(600):
        if condition():
            return True
        threading.Event().wait(0.05)
    return False


@pytest.mark.feature("A-12")
def test_max_timeline_entries(tmp_path: Path) -> None:
    """`maxTimelineEntries`: the oldest entries are trimmed from memory, never from the log."""
    with App(ECHO, root=tmp_path, max_timeline_entries=2) as app:
        session = app.session()
        for text in ("one", "two", "three"):
            session.send(text).wait()
        assert [one["content"] for one in session.timeline()] == ["three", "three"]
        assert len(session.timeline.history) == 6


@pytest.mark.feature("A-13")
def test_timeline_ownership(app: App) -> None:
    """Timeline Ownership: limit, tokens and roles; entries, set, update; a history to read."""
    session = app.session()
    for text in ("one", "two", "three"):
        session.send(text).wait()

    # <Timeline limit maxTokens roles />
    assert [one["content"] for one in session.timeline(limit=2)] == ["three", "three"]
    assert len(session.timeline(max_tokens=1)) == 0
    user = session.timeline(roles=["user"])
    assert [one["content"] for one in user] == ["one", "two", "three"]

    # useTimeline()
    session.timeline.update(lambda entries: entries[-2:])
    assert session.timeline.entries == session.timeline()
    session.timeline.set(session.timeline.entries[:1])
    assert [one["content"] for one in session.timeline()] == ["three"]

    # useConversationHistory()
    assert len(session.timeline.history) == 6

    # useTickState().timeline
    seen: list[int] = []

    def model(request: ModelRequest) -> str:
        seen.append(len(request.timeline()))
        return "ok"

    agent = AgentConfig(provider=model_provider("reading", model))
    app.session().spawn(agent, HELLO).wait()
    assert seen == [1]


# Files

FILES = {
    "types.ts": "agentsdir",
    "session.ts": "agentsdir.engine.app.session",
    "session-store.ts": "agentsdir.engine.app.session_store",
    "sqlite-session-store.ts": "agentsdir.engine.app.sqlite_store",
}


@pytest.mark.parametrize("name", FILES)
def test_files(name: str) -> None:
    """Files: each has its module."""
    assert import_module(FILES[name]).__doc__


# The seed itself


def test_each_heading_with_an_example_has_a_test() -> None:
    """In the order of the seed, so that both can be read side by side."""
    if not SEED.exists():
        pytest.skip("the seed is not beside this clone")
    heading, wanted, is_code = "", [], False
    for line in SEED.read_text().split("\n"):
        if line.startswith("```"):
            if line in ("```typescript", "```") and not is_code and heading not in wanted:
                wanted.append(heading)
            is_code = not is_code
        elif line.startswith("#") and not is_code:
            heading = line.lstrip("# ")
    docs = [
        ast.get_docstring(one) or ""
        for one in ast.parse(Path(__file__).read_text()).body
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    ]
    places = [next((n for n, d in enumerate(docs) if d.startswith(h)), None) for h in wanted]
    assert wanted == [*ON_THE_PAGE]
    assert None not in places, [h for h, p in zip(wanted, places, strict=True) if p is None]
    assert places == sorted(places)  # type: ignore[type-var]


ON_THE_PAGE = {
    "Overview": ("App(", "app.session(", "app.run(", "app.sessions"),
    "Creating Sessions": ('app.session("user-123")', "app.session()"),
    "Session Methods (All Procedures)": (
        ".send(",
        ".render(",
        ".queue(",
        ".spawn(",
        ".use(",
        ".with_context(",
    ),
    "Session Lifecycle": (".interrupt(", ".clear_abort(", ".close(", ".snapshot(", ".inspect("),
    "Three Input Forms": ("spawn(researcher,", "spawn(summarizer,", "spawn(element("),
    "From Tool Handlers": ("context.spawn(",),
    "Parallel Spawns": ('second = session.spawn(researcher, "two"',),
    "SpawnOptions": ("model=", "max_ticks="),
    "Lifecycle Callbacks": ("Callbacks(", "on_tick_start=", "on_complete="),
    "Execution Runner": ("(ExecutionRunner)", "def prepare_model_input(", "def execute_tool_call("),
}
"""What of each example of the seed stands in a piece of Python of docs/library.md."""


@pytest.mark.parametrize("heading", ON_THE_PAGE)
def test_each_example_is_on_the_page_of_the_library(heading: str) -> None:
    """A test of that page runs them."""
    page = (Path(__file__).parents[2] / "docs/library.md").read_text()
    code = "".join(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert [call for call in ON_THE_PAGE[heading] if call not in code] == []


TABLES = {
    "Session Methods (All Procedures)": tuple(METHODS),
    "Session Properties": tuple(PROPERTIES),
    "SpawnOptions": tuple(SPAWN_OPTIONS),
    "Lifecycle Callbacks": MORE,
    "Hook Timing": tuple(TIMING),
    "Files": tuple(FILES),
}


def test_each_table_is_checked_with_all_its_rows() -> None:
    """None of the seed has a row that no test above has."""
    if not SEED.exists():
        pytest.skip("the seed is not beside this clone")
    found: dict[str, list[str]] = {}
    heading = ""
    for line in SEED.read_text().split("\n"):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif row := re.match(r"\| `([\w.-]+)`", line):
            found.setdefault(heading, []).append(row[1])
    order = {name: sorted(rows) for name, rows in found.items()}
    assert order == {name: sorted(rows) for name, rows in TABLES.items()}
