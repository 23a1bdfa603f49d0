"""Tests of an agent that need no model: a script says what the model does.

pytest examples/test_assistant.py
"""

from pathlib import Path

import pytest

from agentsdir import AgentConfig, App, Architecture, ProviderError, ToolCall, tool, write_script

# The agent. It would be a module of your program.
ORDERS = {"A-17": "shipped", "A-18": "lost"}


@tool
def order_status(number: str) -> str:
    """Look up where an order is."""
    return ORDERS[number]


def assistant(provider: str | Architecture, **options: str) -> AgentConfig:
    """Return the agent of the shop, for the model of your program (`model_provider`), or a test."""
    return AgentConfig(
        provider=provider,
        system="You help customers with their orders.",
        tools=[order_status],
        options=options,
    )


# Its tests.
def test_the_assistant_looks_an_order_up(tmp_path: Path) -> None:
    """The tool runs for real, between what the model says."""
    look_up = ToolCall("order_status", {"number": "A-17"})
    script = write_script(tmp_path / "model.jsonl", [look_up, "It is on its way."])

    with App(assistant("script", file=script), root=tmp_path / "agents") as app:
        execution = app.session().send("Where is A-17?")

        assert execution.result.response == "It is on its way."
        assert execution.result.tools_used == {"order_status": 1}
        blocks = [event["block"] for event in execution if event["type"] == "block_complete"]
        assert [one["output"] for one in blocks if one["type"] == "tool_result"] == ["shipped"]


def test_an_unknown_order_is_an_error_for_the_model(tmp_path: Path) -> None:
    """The turn goes on, and the model can say so."""
    look_up = ToolCall("order_status", {"number": "X-1"})
    script = write_script(tmp_path / "model.jsonl", [look_up, "I do not know that order."])

    with App(assistant("script", file=script), root=tmp_path / "agents") as app:
        execution = app.session().send("Where is X-1?")

        assert execution.result.response == "I do not know that order."
        blocks = [event["block"] for event in execution if event["type"] == "block_complete"]
        assert [one["isError"] for one in blocks if one["type"] == "tool_result"] == [True]


def test_a_model_that_is_overloaded_can_be_asked_again(tmp_path: Path) -> None:
    """A turn that failed raises from `result`, and the session goes on."""
    overloaded = ProviderError("try later", kind="rate-limited")
    script = write_script(tmp_path / "model.jsonl", [overloaded], ["Good morning!"])

    with App(assistant("script", file=script), root=tmp_path / "agents") as app:
        session = app.session()
        with pytest.raises(ProviderError, match="try later"):
            session.send("hello").wait()

        assert session.send("hello").result.response == "Good morning!"
