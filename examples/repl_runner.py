"""A runner that is an interpreter: the model answers with code, whose variables stay.

$ python examples/repl_runner.py "x = 6"
$ python examples/repl_runner.py "x * 7"
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from agentsdir import (
    AgentConfig,
    App,
    ExecutionRunner,
    FileSessionStore,
    ModelRequest,
    SessionRef,
    Tool,
    ToolCall,
    model_provider,
    tool,
)


def weather(city: str) -> str:
    """Look up the weather in a city."""
    return f"It rains in {city}."


class Repl(ExecutionRunner):
    """Carries out the calls of `execute`, the one tool that the model has."""

    name = "repl"

    def __init__(self) -> None:
        self.variables: dict[str, Any] = {}

    def prepare_model_input(self, model_input: ModelRequest, tools: Sequence[Tool]) -> ModelRequest:
        """Put the schemas of the tools into words: they are functions in the interpreter."""
        functions = "\n".join(f"- {one.name}: {one.description}" for one in tools)
        system = f"{model_input.system}\nAnswer by execute(code), where you have\n{functions}"
        return model_input._replace(tools=(), system=system)

    def execute_tool_call(self, call: ToolCall, tool: Tool | None, next: Callable[[], Any]) -> Any:
        """Run the code. This is no sandbox: put one here."""
        if call.name != "execute":
            return next()
        code, functions = call.input["code"], {"weather": weather}
        try:
            return eval(code, functions, self.variables)
        except SyntaxError:  # no expression
            exec(code, functions, self.variables)
            return "done"

    def on_persist(self, session: SessionRef, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Save the variables with the session."""
        return {**snapshot, "variables": self.variables}

    def on_restore(self, session: SessionRef, snapshot: dict[str, Any]) -> None:
        """Take the variables back, in another process."""
        self.variables = snapshot["variables"]


def model(request: ModelRequest) -> str | list[ToolCall]:
    """Stand in for a model that writes code: it takes yours."""
    if not request.results:
        return [ToolCall("execute", {"code": request.content})]
    return str(request.results[0]["output"])


def main(code: str) -> None:
    """Have one prompt answered."""
    agent = AgentConfig(provider=model_provider("coder", model), tools=[tool(weather)])
    with App(agent, runner=Repl, store=FileSessionStore("snapshots")) as app:
        print(app.session("repl").send(code).result.response)


if __name__ == "__main__":
    main(sys.argv[1])
