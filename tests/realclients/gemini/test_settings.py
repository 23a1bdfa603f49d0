"""Settings that are changed, at the real client: its next turn runs with them."""

from __future__ import annotations

from gemini_desk import MODEL
from gemini_desk import GeminiDesk as Desk


def test_the_next_turn_of_the_session_has_the_new_model_and_prompt(any_desk: Desk) -> None:
    """In the same session, with what was said before."""
    agent = any_desk.new("--system", "Be brief.")
    any_desk.ok("send", agent, any_desk.ask("hello"))
    native, before = any_desk.native(agent), any_desk.api.of("hello")[-1]
    assert (before.model, "Be brief." in before.system) == (MODEL, True)

    any_desk.ok("set", agent, "model=gemini-2.5-pro", "system=Be kind.")

    any_desk.ok("send", agent, any_desk.ask("again"))
    after = any_desk.api.of("again")[-1]
    assert after.model == "gemini-2.5-pro"
    assert ("Be kind." in after.system, "Be brief." in after.system) == (True, False)
    assert any("Good day." in text for text in after.texts)
    assert any_desk.native(agent) == native
    any_desk.sound(agent)
