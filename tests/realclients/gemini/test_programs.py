"""A program that a person would copy, with the Gemini CLI."""

from __future__ import annotations

import pytest
from gemini_desk import GeminiDesk as Desk
from programs import check


@pytest.mark.feature("A-01", "A-02")
def test_a_bot_answers_two_users_each_in_a_session_of_the_client(any_desk: Desk) -> None:
    """Turns of both run at once, in threads of the program."""
    check(any_desk)
