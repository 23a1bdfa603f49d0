"""The prompt with the real client behind it: a turn, permission asked inside, an interrupt."""

from __future__ import annotations

from typing import Any

from chat_terminal import ChatTerminal, needs_tmux
from claude_desk import ClaudeDesk as Desk
from commands import until

pytestmark = needs_tmux


def at_prompt(desk: Desk, agent: str) -> ChatTerminal:
    """Start a prompt for an agent at the desk of its user."""
    variables = {**desk.environment, "PWD": str(desk.work)}
    terminal = ChatTerminal(desk.folder, 120, 40, variables)
    terminal.start("chat", agent)
    return terminal


def test_a_turn_is_shown_and_permission_is_asked_inside(any_desk: Desk) -> None:
    """The client's question stands above the line."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new("--name", "asker")
    terminal = at_prompt(any_desk, agent)
    try:
        prompt: Any = any_desk.ask("write", **any_desk.words)
        terminal.line(prompt)
        terminal.wait_for("wants to use Write in")
        terminal.wait_for("y yes · n no")
        terminal.answer("y")
        terminal.wait_for(r"^  └ .*\d")
        terminal.wait_for_status(r"asker · active · claude .*\$0\.\d+ · context \d+%")
        terminal.keys("C-d")
        terminal.wait_until(lambda _: terminal.has_ended, "the end")
    finally:
        terminal.close()
    until(lambda: not any_desk.running(), "that nothing runs on")
    assert (any_desk.work / "asked.txt").read_text() == "asked\n"
    any_desk.sound(agent)
