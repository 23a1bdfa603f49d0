"""A plain loop of a model and its tools as a provider: it gets sessions, and a log of each step.

$ python examples/plain_loop.py "17 * 23"
"""

import sys
from collections.abc import Iterator
from typing import Any

from agentsdir import AgentConfig, App, ModelRequest, ToolCall, ToolResult, model_provider


def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Stand in for the client of your model."""
    last = messages[-1]["content"]
    if messages[-1]["role"] == "tool":
        return {"text": f"That is {last}.", "calls": []}
    a, b = last.split(" * ")
    return {"text": "Let me see.", "calls": [("call-1", "multiply", {"a": int(a), "b": int(b)})]}


def agent(request: ModelRequest) -> Iterator[str | ToolCall | ToolResult]:
    """Run the loop: each piece that it yields is streamed and logged before it goes on."""
    messages = [{"role": "user", "content": request.content}]
    while answer := ask_model(messages):
        yield answer["text"]
        for name, tool, given in answer["calls"]:
            yield ToolCall(tool, given, name)
            output = given["a"] * given["b"]
            yield ToolResult(name, output)
            messages.append({"role": "tool", "content": output})
        if not answer["calls"]:
            return


with App(AgentConfig(provider=model_provider("plain-loop", agent))) as app:
    print(app.session("sums").send(sys.argv[1]).result.response)
