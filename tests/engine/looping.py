"""A model that is a function, and turns with tools: shared by the tests of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from agentsdir.adapters import registry
from agentsdir.adapters.in_process import model_provider
from agentsdir.engine.dispatcher import send_message
from agentsdir.engine.extensions import Extensions
from agentsdir.engine.inbox import Message
from agentsdir.engine.result import TurnResult
from agentsdir.engine.tools import Tool
from agentsdir.engine.turn import TurnOptions

MODEL = "bot"


@contextmanager
def model(call: Callable[[Any], Any], name: str = MODEL) -> Iterator[None]:
    """Have a provider of this process whose model is a function."""
    registry.register(model_provider(name, call))
    try:
        yield
    finally:
        registry.unregister(name)


def run_turn(
    stage: Any,
    paths: Any,
    *tools: Tool,
    text: str = "hi",
    events: list[dict[str, Any]] | None = None,
    timeout: float = 0,
    **extensions: Any,
) -> TurnResult:
    """Send a text to an agent whose turns have tools; return the result."""
    added = Extensions(tools={tool.name: tool for tool in tools}, **extensions)
    on_event = (lambda _event: None) if events is None else events.append
    options = TurnOptions(on_event, timeout=timeout, extensions=added)
    return send_message(stage.services, paths, Message([{"type": "text", "text": text}]), options)


def logged(stage: Any, paths: Any) -> list[dict[str, Any]]:
    """Return the blocks of the log, each as it was logged last, where it was logged first."""
    found: dict[str, dict[str, Any]] = {}
    for record in stage.log(paths):
        if record["event"] == "block":
            found[record["data"]["block"]["id"]] = record["data"]["block"]
    return list(found.values())


def said(blocks: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return the type of each block, with what it says."""
    says = {"tool_use": "status", "tool_result": "output"}
    return [(b["type"], b[says.get(b["type"], "content")]) for b in blocks]


def write_script(path: Path, *lines: dict[str, Any]) -> str:
    """Write a script; return its path."""
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return str(path)


def called(name: str, use: str, given: Any = None, **fields: Any) -> dict[str, Any]:
    """Return the line of a script that calls a tool."""
    call = {"toolName": name, "toolUseId": use, "input": given or {}, "status": "pending"}
    block = {"type": "tool_use", "id": use, **call, **fields}
    return {"type": "block_complete", "blockId": use, "block": block}


def answered(use: str, output: Any) -> dict[str, Any]:
    """Return the line of a script that has the result of a call."""
    block = {"type": "tool_result", "id": f"r-{use}", "toolUseId": use, "output": output}
    block["isError"] = False
    return {"type": "block_complete", "blockId": block["id"], "block": block}


def spoken(text: str, **fields: Any) -> dict[str, Any]:
    """Return the line of a script that says something."""
    block = {"type": "assistant_text", "id": text, "content": text, **fields}
    return {"type": "block_complete", "blockId": text, "block": block}
