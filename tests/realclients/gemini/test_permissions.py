"""Rules and the real client, which asks nothing: it is handed the names of tools."""

from __future__ import annotations

from gemini_desk import GeminiDesk as Desk


def test_the_name_of_a_tool_that_is_allowed_is_a_tool_that_the_client_has(any_desk: Desk) -> None:
    """And no other; without the rule it has none that changes anything."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new()
    any_desk.send(agent, "write")
    assert not (any_desk.work / "asked.txt").exists()

    any_desk.ok("permissions", "allow", agent, "write_file", "replace")
    assert any_desk.send(agent, "write").code == 0
    assert (any_desk.work / "asked.txt").read_text() == "asked\n"
    any_desk.send(agent, "tools")
    failed = [
        block["isError"]
        for block in any_desk.blocks(agent).values()
        if block["type"] == "tool_result"
    ]
    # The write before the rule; of the tools a file is read and written, and no command runs.
    assert failed == [True, False, False, True, False, True]
    any_desk.sound(agent)


def test_where_there_is_a_hook_the_client_is_handed_no_rules(any_desk: Desk) -> None:
    """It would never be asked."""
    any_desk.configure(permission_mode="default")
    any_desk.hook("tool-confirmation", "exit 1")
    agent = any_desk.new()
    any_desk.ok("permissions", "allow", agent, "write_file")
    any_desk.send(agent, "write")
    assert not (any_desk.work / "asked.txt").exists()
