"""A session is followed while the real client writes it."""

from __future__ import annotations

import signal

import pytest
from claude_desk import ClaudeDesk as Desk


@pytest.mark.parametrize("plan", ["tools", "delegate"])
def test_what_the_client_writes_is_printed_as_it_writes_it(any_desk: Desk, plan: str) -> None:
    """From before its first turn on, subagents included; the end is what parsing gives."""
    agent = any_desk.new()
    following = any_desk.start("follow", agent, "--events")
    assert following.stdout is not None
    running = any_desk.begin(agent, plan)
    first = following.stdout.readline()
    assert b"block_complete" in first
    assert any_desk.end(running).code == 0

    native = any_desk.native(agent)
    parsed = any_desk.ok("parse", native).rows
    last = parsed[-1]["id"].encode()
    for line in following.stdout:
        if last in line or b":end" in last:
            break
    following.send_signal(signal.SIGINT)
    assert any_desk.end(following).code == 130

    followed = any_desk.ok("follow", native, "--until-idle", "0").rows
    latest = {row["id"]: row for row in followed}
    for row in (*latest.values(), *parsed):
        row.pop("usage", None)  # for tokens alone no block is reported again
    assert latest == {row["id"]: row for row in parsed}
