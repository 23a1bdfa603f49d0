"""What both clients' tests of spawning hold an agent to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
from desk import Desk

from agentsdir.formats.blocks import Reducer

CLI = Path(sys.executable).with_name("agentsdir")


def answers_in_the_next_turn(any_desk: Desk[Any]) -> None:
    """Have an agent spawn a child in a tool call.

    The child is sent nothing of its parent's turns, and the parent what the child said.
    """
    parent = any_desk.new("--name", "parent")
    prompt = any_desk.ask("spawner", cli=CLI)
    done = any_desk.ok("send", "--events", "--children", parent, prompt)
    assert "The helper has answered." in done.out
    (child,) = {path.name for path in (any_desk.root / "agents").iterdir()} - {parent}

    (request,) = any_desk.api.of("hello")
    assert not [text for text in request.texts if "spawner" in text or "Asking" in text]
    assert any_desk.said(child) == ["Good day."]
    told = f'<system_message origin="{child}">Good day.</system_message>'
    assert any_desk.api.of("spawner")[-1].texts[-1] == told
    assert any_desk.said(parent) == [
        "Asking a helper.", "It is on its way.", "The helper has answered."
    ]  # fmt: skip
    blocks = [one["block"] for one in any_desk.of(parent, "block")]
    assert [b["status"] for b in blocks if b["id"] == f"spawn:{child}"] == [
        "pending", "running", "success"
    ]  # fmt: skip
    turns = [one["message_ids"] for one in any_desk.of(parent, "turn.start")]
    assert len(turns) == 2
    for agent in (parent, child):
        any_desk.sound(agent)
    events = list(map(orjson.loads, done.out.splitlines()))
    assert [e["type"] for e in events if e.get("blockId") == f"spawn:{child}"] == [
        "block_start", "block_update", "block_complete"
    ]  # fmt: skip
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    runtime = orjson.loads(any_desk.ok("inspect", parent, "--runtime").out)
    (thread,) = [one for one in runtime["subagents"] if one["id"] == child]
    assert reducer.blocks(child) == thread["blocks"]
    assert [block["type"] for block in thread["blocks"]][::len(thread["blocks"]) - 1] == [
        "system", "system"
    ]  # fmt: skip
