"""Turns of a client that run in threads of one process, and the command of a tool in them."""

from __future__ import annotations

from commands import PATIENCE, until
from desk import Desk

from agentsdir.adapters import processes


def tool_runs(desk: Desk) -> int:
    """Return the process id of the command that the `sleeper` plan has started."""
    path = desk.work / "begun"
    return int(until(lambda: path.exists() and path.read_text().strip(), "the tool's begin"))


def end_one_by_one(desk: Desk, first: str, second: str) -> None:
    """Run a turn of each of two agents, and interrupt the second one before the first."""
    sleeps = desk.begin_here(first, "sleeper")
    command = tool_runs(desk)
    stalls = desk.begin_here(second, "stall")
    until(lambda: desk.api.of("stall"), "the request")
    asked = desk("interrupt", second)
    assert asked.code == 0, asked
    assert stalls.result(PATIENCE).code == 130
    assert processes.find(command) is not None
    assert desk("interrupt", first).code == 0
    assert sleeps.result(PATIENCE).code == 130
    assert processes.find(command) is None
    desk.sound(first)
    desk.quiet()
