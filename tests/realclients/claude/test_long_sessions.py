"""A long session of the real client: the end of a turn reads from the checkpoint on."""

from __future__ import annotations

import json

from claude_desk import ClaudeDesk as Desk

ROWS, LONG = 13, 100_000


def lengthen(desk: Desk, agent: str) -> None:
    """Make the client's transcript longer than 1 MiB, by rows that it passes over."""
    native = desk.native(agent)
    row = json.dumps({"type": "tag", "tag": "x" * LONG, "sessionId": native})
    with desk.transcript(native).open("a") as stream:
        stream.writelines(f"{row}\n" for _ in range(ROWS))


def test_turns_of_a_long_session_are_logged_from_a_checkpoint_on(any_desk: Desk) -> None:
    """Calls, and a subagent with a file of its own; each whole reading would renew the file."""
    agent = any_desk.new()
    assert any_desk.send(agent, "hello").code == 0
    lengthen(any_desk, agent)
    assert any_desk.send(agent, "tools").code == 0
    any_desk.sound(agent)
    checkpoint = any_desk.root / "agents" / agent / "checkpoint.json"
    before = checkpoint.read_bytes()
    assert json.loads(before)["size"] > ROWS * LONG
    for plan in ("parallel", "delegate", "again"):
        assert any_desk.send(agent, plan).code == 0
        any_desk.sound(agent)
    assert checkpoint.read_bytes() == before
    assert any_desk.transcript(any_desk.native(agent)).stat().st_size > json.loads(before)["size"]
