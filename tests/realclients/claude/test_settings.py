"""Settings that are changed, at the real client: its next turn runs with them."""

from __future__ import annotations

from claude_desk import ClaudeDesk as Desk


def test_the_next_turn_of_the_session_has_the_new_model_and_prompt(any_desk: Desk) -> None:
    """In the same session, with what was said before."""
    agent = any_desk.new("--system", "Be brief.")
    any_desk.ok("send", agent, any_desk.ask("hello"))
    native, before = any_desk.native(agent), any_desk.api.of("hello")[-1]
    assert "Be brief." in before.system

    any_desk.ok("set", agent, "model=claude-other-1", "system=Be kind.")

    any_desk.ok("send", agent, any_desk.ask("again"))
    after = any_desk.api.of("again")[-1]
    assert (after.model, before.model != after.model) == ("claude-other-1", True)
    assert ("Be kind." in after.system, "Be brief." in after.system) == (True, False)
    assert "Good day." in after.texts
    assert any_desk.native(agent) == native
    any_desk.sound(agent)


def test_a_mode_of_the_users_lets_the_client_edit_without_a_question(any_desk: Desk) -> None:
    """Until it is taken back."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new()
    any_desk.send(agent, "write")
    assert not (any_desk.work / "asked.txt").exists()

    done = any_desk("set", agent, "permission-mode=acceptEdits")
    assert (done.code, "edits files in its folder without asking" in done.err) == (0, True)
    assert any_desk.send(agent, "write").code == 0
    assert (any_desk.work / "asked.txt").read_text() == "asked\n"

    (any_desk.work / "asked.txt").unlink()
    any_desk.ok("set", agent, "permission-mode=")
    any_desk.send(agent, "write")
    assert not (any_desk.work / "asked.txt").exists()
    any_desk.sound(agent)


def test_money_that_the_client_reports_is_counted(any_desk: Desk) -> None:
    """The turn that spends the budget ends; the next one does not begin."""
    agent = any_desk.new()
    any_desk.ok("set", agent, "budget=cost:0.000001/day")
    assert any_desk.ok("send", agent, any_desk.ask("hello")).out == "Good day.\n"
    done = any_desk("send", agent, any_desk.ask("again"), "--json")
    assert done.code == 13
    assert b'"kind":"budget"' in done.err.encode()
    spent = any_desk.ok("set", agent).json["budget"]["spent"]["cost"]
    assert spent > 0
    assert any_desk.api.of("again") == []
