"""An agent that runs `agentsdir spawn` in a tool call gets the child's answer as its next turn."""

from __future__ import annotations

import pytest
import spawned
from gemini_desk import GeminiDesk as Desk


@pytest.mark.feature("A-05", "S-09", "B-04")
def test_a_child_spawned_in_a_turn_answers_in_the_next_one(any_desk: Desk) -> None:
    """The child is sent nothing of its parent's turns, and the parent what the child said."""
    spawned.answers_in_the_next_turn(any_desk)
