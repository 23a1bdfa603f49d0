"""Execution runners: what they change, when each method is called, and whose turns need one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from looping import MODEL, called, logged, model, run_turn, said, spoken, write_script

from agentsdir.adapters.protocol import Decision, ToolCall, ToolRequest
from agentsdir.engine.dispatcher import run_inbox, send
from agentsdir.engine.extensions import Extensions, decision_of
from agentsdir.engine.runner import METHODS, ExecutionRunner, overrides
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.tools import ToolOutput, create_tool, tool
from agentsdir.engine.turn import TurnOptions
from agentsdir.engine.turn_lock import hold_turn
from agentsdir.formats.errors import AgentsdirError, ProviderError, Terminated, UsageError
from agentsdir.formats.store.agent import read_agent


@tool
def execute(code: str) -> str:
    """Run code on the machine itself."""
    return f"unsafe {code}"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Repl(ExecutionRunner):
    """The runner of the seed: no schemas for the model, and `execute` runs in a sandbox."""

    name = "repl"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def prepare_model_input(self, model_input: Any, tools: Any) -> Any:
        """Drop the tool schemas."""
        self.seen.append(("prepare", model_input.tick, [one.name for one in tools]))
        return model_input._replace(tools=())

    def execute_tool_call(self, call: Any, tool: Any, next: Any) -> Any:  # noqa: A002
        """Intercept `execute`."""
        self.seen.append(("call", call.name, tool and tool.name))
        if call.name == "execute":
            return f"ran {call.input['code']} in the sandbox"
        return next()

    def on_session_init(self, session: Any) -> None:
        """Set up the sandbox."""
        self.seen.append(("init", session.id, session.status))


def answers(request: Any) -> Any:
    """Call two tools, then say how many were shown."""
    if request.tick == 1:
        return [ToolCall("execute", {"code": "1+1"}), ToolCall("add", {"a": 1, "b": 2})]
    return f"{len(request.tools)} tools"


@pytest.mark.feature("A-08")
def test_each_method_is_called_at_the_frequency_of_the_seed(stage: Any) -> None:
    """The set-up once for a session, the input before each model call, each call of a tool."""
    runner = Repl()
    with model(answers):
        paths = stage.new(provider=MODEL)
        assert run_turn(stage, paths, execute, add, runner=runner).response == "0 tools"
        results = {("tool_result", "ran 1+1 in the sandbox"), ("tool_result", 3)}
        assert results < {*said(logged(stage, paths))}
        # Another process, with a runner of the same name.
        other = Repl()
        run_turn(stage, paths, execute, add, runner=other)
    names = ["execute", "add"]
    turn = [("prepare", 1, names), ("prepare", 2, names)]
    calls = {("call", "execute", "execute"), ("call", "add", "add")}
    assert runner.seen[:2] == [("init", paths.id, "running"), turn[0]]
    assert (set(runner.seen[2:4]), runner.seen[4:]) == (calls, turn[1:])
    assert (other.seen[0], set(other.seen[1:3]), other.seen[3:]) == (turn[0], calls, turn[1:])
    assert stage.events(paths).count("runner.initialized") == 1
    events = stage.events(paths)
    assert events.index("turn.start") < events.index("runner.initialized") < events.index("block")
    assert read_agent(paths).state.runner == "repl"


def test_a_runner_without_a_sandbox_of_its_own_changes_nothing(stage: Any) -> None:
    """Standard behaviour applies, but for the record of the runner."""

    class Plain(ExecutionRunner):
        name = "plain"

    assert overrides(Plain()) == frozenset()
    assert overrides(Repl()) == {"prepare_model_input", "execute_tool_call", "on_session_init"}
    plain = Plain()
    plain.on_destroy = lambda session: None  # type: ignore[method-assign]
    assert overrides(plain) == {"on_destroy"} <= set(METHODS)
    with model(answers):
        paths = stage.new(provider=MODEL)
        assert run_turn(stage, paths, execute, add, runner=Plain()).response == "2 tools"


def test_a_runner_gets_calls_of_tools_that_nothing_else_has(stage: Any, tmp_path: Path) -> None:
    """Of a script, too; what it passes on is an error that the model can read."""
    script = write_script(
        tmp_path / "s.jsonl",
        called("execute", "u1", {"code": "2"}),
        called("other", "u2"),
        spoken("done"),
    )
    paths = stage.script(script)
    assert run_turn(stage, paths, runner=Repl()).response == "done"
    results = {b["toolUseId"]: b for b in logged(stage, paths) if b["type"] == "tool_result"}
    assert results["u1"]["output"] == "ran 2 in the sandbox"
    assert (results["u2"]["output"], results["u2"]["isError"]) == ("there is no tool 'other'", True)


def test_a_runner_may_change_what_a_tool_gave_and_see_how_it_failed(stage: Any) -> None:
    """`next` returns an output, and raises nothing."""

    class Wraps(ExecutionRunner):
        name = "wraps"

        async def execute_tool_call(self, call: Any, tool: Any, next: Any) -> Any:  # noqa: A002
            output = next()
            return ToolOutput({"was": output.output}, is_error=output.is_error)

    fails = create_tool("fails", {"type": "object"}, lambda _: 1 / 0)
    with model(lambda r: "so" if r.results else [ToolCall("fails", {})]):
        paths = stage.new(provider=MODEL)
        run_turn(stage, paths, fails, runner=Wraps())
    result = next(b for b in logged(stage, paths) if b["type"] == "tool_result")
    assert result["output"] == {"was": "ZeroDivisionError: division by zero"}
    assert result["isError"]


def test_a_call_that_the_runner_fails_at_is_an_error_for_the_model(stage: Any) -> None:
    """The turn goes on."""

    class Breaks(ExecutionRunner):
        name = "breaks"

        def execute_tool_call(self, call: Any, tool: Any, next: Any) -> Any:  # noqa: A002
            raise OSError("no sandbox")

    with model(lambda r: "so" if r.results else [ToolCall("add", {"a": 1, "b": 1})]):
        paths = stage.new(provider=MODEL)
        assert run_turn(stage, paths, add, runner=Breaks()).response == "so"
    assert ("tool_result", "OSError: no sandbox") in said(logged(stage, paths))


@pytest.mark.parametrize("wrong", ["raises", "returns nothing", "cannot set up"])
def test_a_runner_that_fails_before_the_model_is_called_fails_the_turn(
    stage: Any, wrong: str
) -> None:
    """The model is not called; a set-up that failed is tried again by the next turn."""

    class Breaks(ExecutionRunner):
        name = "breaks"

        def prepare_model_input(self, model_input: Any, tools: Any) -> Any:
            if wrong == "raises":
                raise ValueError("no input")
            return None if wrong == "returns nothing" else model_input

        def on_session_init(self, session: Any) -> None:
            if wrong == "cannot set up":
                raise OSError("no sandbox")

    asked: list[Any] = []
    with model(lambda request: asked.append(request) or "never"):
        paths = stage.new(provider=MODEL)
        with pytest.raises(AgentsdirError) as failed:
            run_turn(stage, paths, runner=Breaks())
        assert failed.value.kind == "runner-failed"
        assert asked == []
        assert ("runner.initialized" in stage.events(paths)) == (wrong != "cannot set up")
        assert stage.events(paths)[-2:] == ["turn.error", "message.delivered"]


def test_a_session_with_a_runner_runs_no_turn_without_it(stage: Any) -> None:
    """Nothing is queued or begun, by a send or by a run of the inbox; a runner of its name may."""
    with model(answers):
        paths = stage.new(provider=MODEL)
        run_turn(stage, paths, execute, add, runner=Repl())
        before = paths.log.read_bytes()

        class Other(ExecutionRunner):
            name = "other"

        quiet = TurnOptions(lambda _event: None)
        for turn in (
            lambda: send(stage.services, paths, [{"type": "text", "text": "hi"}], lambda _: None),
            lambda: run_turn(stage, paths, execute, add, runner=Other()),
            lambda: run_inbox(stage.services, paths, quiet),
        ):
            with pytest.raises(UsageError) as refused:
                turn()
            assert refused.value.kind == "no-runner"
        assert paths.log.read_bytes() == before
        stage.enqueue(paths, "earlier")
        assert run_turn(stage, paths, execute, add, runner=Repl()).outcome == "completed"
    assert stage.events(paths).count("turn.complete") == 3


def test_spawned_agents_run_in_the_runner_of_their_parent(stage: Any) -> None:
    """In this process, however many; where no program has the runner, they do not run at all."""
    runner = Repl()
    prompt = [{"type": "text", "text": "help"}]

    def delegate(_given: Any, ctx: Any) -> str:
        for _ in range(2):
            request = SpawnRequest(prompt, ephemeral=False)
            create_child(stage.services, paths, request, turn_id=ctx.turn_id, sync=True)
        return "asked"

    def call(request: Any) -> Any:
        if request.content == "hi" and request.tick == 1:
            return [ToolCall("delegate", {})]
        return [ToolCall("execute", {"code": "x"})] if request.tick == 1 else "done"

    def start_turn(*_arguments: Any, **_options: Any) -> Any:
        raise AssertionError("another process has no such runner")

    class Starting:
        services = stage.services._replace(start_turn=start_turn)

    tools = (execute, create_tool("delegate", {"type": "object"}, delegate))
    with model(call):
        paths = stage.new(provider=MODEL)
        run_turn(Starting, paths, *tools, runner=runner)
        layout = stage.services.layout
        children = [layout.agent(one) for one in layout.agent_ids() if one != paths.id]
        assert len(children) == 2
        for child in children:
            assert read_agent(child).state.runner == "repl"
            assert ("init", child.id, "running") in runner.seen
            assert ("tool_result", "ran x in the sandbox") in said(logged(stage, child))
        with hold_turn(paths):
            late = create_child(
                stage.services, paths, SpawnRequest(prompt), turn_id=None, sync=False
            ).paths
        with pytest.raises(UsageError) as refused:
            send(stage.services, late, prompt, lambda _: None)
        assert refused.value.kind == "no-runner"


def test_what_a_provider_cannot_do_with_a_runner_is_an_error(
    stage: Any, plugin: Any, tmp_path: Path
) -> None:
    """Not a method that is never called; one whose methods are all the engine's may have any."""

    class Initialises(ExecutionRunner):
        name = "initialises"

        def on_session_init(self, session: Any) -> None:
            """Do nothing."""

    plugin("plain", body='yield self.answer("hello")')
    paths = stage.new(provider="plain")
    before = paths.log.read_bytes()
    for kind, tools, runner in (
        ("runner-unsupported", (), Repl()),
        ("tools-unsupported", (add,), None),
        ("bad-runner", (), ExecutionRunner()),
    ):
        with pytest.raises(UsageError) as refused:
            run_turn(stage, paths, *tools, runner=runner)
        assert refused.value.kind == kind
    assert paths.log.read_bytes() == before
    assert run_turn(stage, paths, runner=Initialises()).response == "hello"


def test_a_stand_in_that_does_not_honour_the_runner_is_none(stage: Any, plugin: Any) -> None:
    """It would run the tools outside the sandbox."""
    plugin("plain", body='yield self.answer("outside")')

    def fails(_request: Any) -> Any:
        raise ProviderError("no answer", kind="overloaded")

    with model(fails):
        paths = stage.new(provider=MODEL, fallbacks=("plain",))
        with pytest.raises(AgentsdirError):
            run_turn(stage, paths, runner=Repl())
    assert "outside" not in paths.log.read_text()


@pytest.mark.parametrize(
    ("does", "decision"),
    [
        (lambda _call, go_on: go_on(), Decision(allowed=True)),
        (lambda call, go_on: call.input.update(path="b") or go_on(),
         Decision(allowed=True, input={"path": "b"})),
        (lambda _call, _go_on: "kept", Decision(allowed=False, reason="kept")),
        (lambda _call, _go_on: {"a": [1]}, Decision(allowed=False, reason='{"a":[1]}')),
        (lambda _call, _go_on: None, Decision(allowed=False)),
        (lambda _call, go_on: go_on() and {1}, Decision(allowed=True)),
        (lambda _call, go_on: go_on() and 1 / 0,
         Decision(allowed=False, reason="ZeroDivisionError: division by zero")),
    ],
)  # fmt: skip
def test_a_client_that_carries_out_its_calls_itself_gets_a_yes_or_a_no(
    does: Any, decision: Decision
) -> None:
    """A yes where the runner called `next` and did not fail, else a no with what it returned."""

    class Decides(ExecutionRunner):
        name = "decides"

        def execute_tool_call(self, call: Any, tool: Any, next: Any) -> Any:  # noqa: A002
            assert (call.name, call.id, tool) == ("Write", "u", None)
            return does(call, next)

    given = {"path": "a"}
    assert decision_of(Decides(), ToolRequest("Write", "u", given)) == decision
    assert given == {"path": "a"}


def test_a_signal_that_ends_this_process_is_no_answer_of_a_runner() -> None:
    """It passes, as everywhere."""

    class Dies(ExecutionRunner):
        name = "dies"

        def execute_tool_call(self, call: Any, tool: Any, next: Any) -> Any:  # noqa: A002
            raise Terminated

    with pytest.raises(Terminated):
        decision_of(Dies(), ToolRequest("Write", "u", {}))


def test_extensions_are_none_by_default() -> None:
    """A turn of a command has no runner, no tools and no callbacks."""
    assert Extensions() == TurnOptions(lambda _event: None).extensions
