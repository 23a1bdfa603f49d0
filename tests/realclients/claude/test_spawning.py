"""An agent that runs `agentsdir spawn` in a tool call gets the child's answer as its next turn."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from claude_desk import ClaudeDesk as Desk

CLI = Path(sys.executable).with_name("agentsdir")


@pytest.mark.feature("A-05", "S-09", "B-04")
def test_a_child_spawned_in_a_turn_answers_in_the_next_one(any_desk: Desk) -> None:
    """The child is sent nothing of its parent's turns, and the parent what the child said."""
    parent = any_desk.new("--name", "parent")
    done = any_desk.ok("send", parent, any_desk.ask("spawner", cli=CLI))
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
