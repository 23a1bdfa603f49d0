"""`open` with the real Claude Code, full-screen in a terminal."""

from __future__ import annotations

import shutil

import pytest
from claude_desk import ClaudeDesk as Desk
from opened import begins_in_the_client, goes_on_in_the_client

READY = r"shortcuts|bypass permissions on|auto mode on|for agents"
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def test_a_person_goes_on_in_the_client_and_the_log_has_it(any_desk: Desk) -> None:
    """The same session, its turn held meanwhile, and the next turn knows all of it."""
    goes_on_in_the_client(any_desk, READY)
    sent = any_desk.api.of("hello")[-1].messages
    assert "This is the next turn." in str(sent)


def test_an_agent_begins_in_the_client(any_desk: Desk) -> None:
    """Under the id that the agent has for its session."""
    begins_in_the_client(any_desk, READY)
