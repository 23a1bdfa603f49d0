"""`open` with the real Gemini CLI, full-screen in a terminal."""

from __future__ import annotations

import shutil

import pytest
from commands import until
from gemini_desk import GeminiDesk as Desk
from opened import (
    PROGRAM,
    begins_in_the_client,
    console_of,
    goes_on_in_the_client,
    prepared_for_a_person,
)

READY = r"Type your message|YOLO"
pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def test_a_person_goes_on_in_the_client_and_the_log_has_it(any_desk: Desk) -> None:
    """The same session, its turn held meanwhile, and no stub of it is left."""
    goes_on_in_the_client(any_desk, READY)


def test_an_agent_begins_in_the_client(desk: Desk) -> None:
    """Under the id that the agent has for its session."""
    begins_in_the_client(desk, READY)


def test_an_older_client_begins_no_session_of_an_id(last_desk: Desk) -> None:
    """Nothing is started; a `send` begins it."""
    if not last_desk.keeps_documents:
        pytest.skip("this client takes an id")
    prepared_for_a_person(last_desk)
    agent = last_desk.new()
    with console_of(last_desk) as console:
        console.type(f"{PROGRAM} open {agent}; echo ended $?")
        until(lambda: "ended 14" in console.shown, "it is refused")
        assert "begins it; then it can be opened" in console.shown.replace("\n", "")
