"""A long session of the real client: a turn follows and reads its log from the checkpoint on."""

from __future__ import annotations

import json

from gemini_desk import GeminiDesk as Desk

ROWS, LONG = 13, 100_000


def lengthen(desk: Desk, agent: str) -> None:
    """Make the client's log longer than 1 MiB, by rows that say nothing to it."""
    row = json.dumps({"$set": {"lastUpdated": "2026-01-02T03:04:05.678Z"}, "padding": "x" * LONG})
    (log,) = desk.chats(desk.native(agent))
    with log.open("a") as stream:
        stream.writelines(f"{row}\n" for _ in range(ROWS))


def test_turns_of_a_long_session_are_logged_from_a_checkpoint_on(desk: Desk) -> None:
    """Each resume restates the history, calls and a subagent in it; none of it is logged again.

    Every whole reading would renew the checkpoint.
    """
    agent = desk.new()
    assert desk.send(agent, "tools").code == 0
    lengthen(desk, agent)
    assert desk.send(agent, "hello").code == 0
    desk.sound(agent)
    checkpoint = desk.root / "agents" / agent / "checkpoint.json"
    before = checkpoint.read_bytes()
    assert json.loads(before)["size"] > ROWS * LONG
    for plan in ("parallel", desk.delegate, "tools", "again"):
        known = [data["block"]["id"] for data in desk.of(agent, "block")]
        assert desk.send(agent, plan).code == 0
        desk.sound(agent)
        news = [data["block"]["id"] for data in desk.of(agent, "block")][len(known) :]
        assert news
        assert set(known).isdisjoint(news)
        desk.later()
    assert checkpoint.read_bytes() == before
    (log,) = desk.chats(desk.native(agent))
    assert log.stat().st_size > json.loads(before)["size"]
