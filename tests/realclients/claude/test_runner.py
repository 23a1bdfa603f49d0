"""An execution runner around the real client: it is asked about each call before it runs."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from claude_desk import ClaudeDesk as Desk

from agentsdir.cli.environment import Environment
from agentsdir.cli.services import services_of
from agentsdir.engine.dispatcher import send_message
from agentsdir.engine.extensions import Extensions
from agentsdir.engine.inbox import Message
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.runner import ExecutionRunner
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import UsageError


def send(desk: Desk, agent: str, plan: str, runner: ExecutionRunner) -> Any:
    """Send such a prompt in this process, with a runner."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", newline="") for _ in range(2))
    home = Path(desk.environment["HOME"])
    env = Environment(BytesIO(), out, err, desk.environment, desk.work, home, login="me")
    services = services_of(env)
    paths = find_agent(services.layout, agent)
    prompt = Message([{"type": "text", "text": desk.ask(plan, **desk.words)}])
    options = TurnOptions(lambda _event: None, extensions=Extensions(runner=runner))
    return send_message(services, paths, prompt, options)


class Sandbox(ExecutionRunner):
    """It notes the calls, and answers for the tools that `instead` names."""

    name = "sandbox"

    def __init__(self, instead: dict[str, Any]) -> None:
        self.instead = instead
        self.asked: list[tuple[str, str]] = []

    def execute_tool_call(self, call: Any, tool: Any, next: Any) -> Any:  # noqa: A002
        """Answer for a tool, change its input, or pass it on."""
        assert tool is None
        self.asked.append((call.name, call.id))
        instead = self.instead.get(call.name)
        if isinstance(instead, dict):
            call.input.update(instead)
            instead = None
        return next() if instead is None else instead


def calls(desk: Desk, agent: str) -> list[tuple[str, str]]:
    """Return the calls that the log has."""
    blocks = desk.blocks(agent).values()
    return [(b["toolName"], b["toolUseId"]) for b in blocks if b["type"] == "tool_use"]


def results(desk: Desk, agent: str) -> list[tuple[bool, str]]:
    """Return the results that the log has."""
    blocks = desk.blocks(agent).values()
    return [(b["isError"], str(b["output"])) for b in blocks if b["type"] == "tool_result"]


def test_a_runner_is_asked_about_each_call_and_grants_nothing(any_desk: Desk) -> None:
    """What it passes on still needs the permission that it needs without a runner."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new()
    runner = Sandbox({})
    assert send(any_desk, agent, "edit", runner).outcome == "completed"
    assert [name for name, _ in runner.asked] == ["Read", "Edit", "Bash"]
    assert runner.asked == calls(any_desk, agent)
    assert [is_error for is_error, _ in results(any_desk, agent)] == [False, True, True]
    assert (any_desk.work / "note.txt").exists()
    any_desk.sound(agent)


def test_a_call_that_the_runner_answers_does_not_run(any_desk: Desk) -> None:
    """The model gets what the runner returned as the reason of a denial."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new()
    any_desk.ok("permissions", "allow", agent, "Write")
    assert send(any_desk, agent, "write", Sandbox({"Write": "kept in the sandbox"})).error is None
    assert not (any_desk.work / "asked.txt").exists()
    ((is_error, said),) = results(any_desk, agent)
    assert is_error
    assert "kept in the sandbox" in said
    any_desk.sound(agent)


def test_a_runner_may_change_the_input_of_a_call(any_desk: Desk) -> None:
    """The client runs what it left, with the permission that this needs."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new()
    any_desk.ok("permissions", "allow", agent, "Write")
    send(any_desk, agent, "write", Sandbox({"Write": {"content": "changed\n"}}))
    assert (any_desk.work / "asked.txt").read_text() == "changed\n"
    any_desk.sound(agent)


def test_what_the_client_cannot_be_asked_is_an_error(any_desk: Desk) -> None:
    """It makes its model's input itself."""

    class Prepares(ExecutionRunner):
        name = "prepares"

        def prepare_model_input(self, model_input: Any, tools: Any) -> Any:
            return model_input

    agent = any_desk.new()
    with pytest.raises(UsageError) as refused:
        send(any_desk, agent, "write", Prepares())
    assert refused.value.kind == "runner-unsupported"
