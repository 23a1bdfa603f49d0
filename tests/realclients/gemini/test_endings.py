"""Turns that are ended from outside: what was done until then stays, and nothing runs on."""

from __future__ import annotations

import os
import signal
from typing import Any

from commands import until
from gemini_desk import GeminiDesk as Desk
from threaded import end_one_by_one, tool_runs

from agentsdir.adapters import processes


def ends(desk: Desk, agent: str) -> list[Any]:
    """Return how the turns ended: the reason or kind, None of one that was completed."""
    return [
        one["data"].get("reason") or one["data"].get("kind")
        for one in desk.log(agent)
        if one["event"] in ("turn.complete", "turn.error", "turn.aborted")
    ]


def test_an_interrupt_keeps_what_was_said_so_far(any_desk: Desk) -> None:
    """The client forgets what it was saying, so the log alone has it."""
    agent = any_desk.new()
    running = any_desk.begin(agent, "stall", "--events")
    until(lambda: any_desk.api.of("stall"), "the request")
    assert running.stdout is not None
    assert any(b"This never" in line for line in running.stdout), any_desk.end(running)
    asked = any_desk("interrupt", agent)
    assert asked.code == 0, asked
    assert any_desk.end(running).code == 130
    assert ends(any_desk, agent) == ["interrupt"]
    assert any_desk.said(agent)[0].startswith("This never")
    any_desk.quiet()
    any_desk.recalled(agent)
    assert ends(any_desk, agent) == ["interrupt", None]


def test_a_signal_to_send_ends_its_turn_and_all_that_the_turn_runs(any_desk: Desk) -> None:
    """In the middle of a tool, which the client leaves running: the call has a result."""
    agent = any_desk.new()
    running = any_desk.begin(agent, "sleeper")
    command = tool_runs(any_desk)
    running.send_signal(signal.SIGINT)
    assert any_desk.end(running).code == 130
    assert processes.find(command) is None
    assert ends(any_desk, agent) == ["interrupt"]
    any_desk.sound(agent)
    assert any("A long command." in text for text in any_desk.recalled(agent).texts)


def test_a_send_that_is_killed_leaves_nothing_running_after_restore(any_desk: Desk) -> None:
    """Kill -9 in the middle of a tool: the client has nothing of the call, and the log has it."""
    agent = any_desk.new()
    any_desk.send(agent, "hello")
    running = any_desk.begin(agent, "sleeper")
    tool_runs(any_desk)
    any_desk.kill(running)
    restored = any_desk("restore", "--json")
    assert restored.code == 0, restored
    any_desk.quiet()
    assert ends(any_desk, agent) == [None, "crash"]
    blocks = any_desk.blocks(agent).values()
    assert [b["toolName"] for b in blocks if b["type"] == "tool_use"] == ["run_shell_command"]
    sent = any_desk.recalled(agent).texts
    assert "Good day." in sent
    assert any("A long command." in text for text in sent)


def test_a_send_after_a_killed_one_needs_no_restore(desk: Desk) -> None:
    """The next turn does what `restore` would, first."""
    agent = desk.new()
    running = desk.begin(agent, "sleeper")
    command = tool_runs(desk)
    desk.kill(running)
    desk.recalled(agent)
    assert processes.find(command) is None
    assert ends(desk, agent) == ["crash", None]


def test_a_client_that_is_killed_fails_its_turn(desk: Desk) -> None:
    """Its command is ended, the call that its file lacks is kept and answered."""
    agent = desk.new()
    running = desk.begin(agent, "sleeper", "--json")
    command = tool_runs(desk)
    os.kill(desk.client_of(running).pid, signal.SIGKILL)
    done = desk.end(running)
    assert (done.code, done.error["kind"]) == (14, "cut-stream"), done
    assert processes.find(command) is None
    assert ends(desk, agent) == ["cut-stream"]
    desk.sound(agent)
    desk.recalled(agent)


def test_a_client_killed_while_a_subagent_works_loses_nothing_of_it(any_desk: Desk) -> None:
    """Its file is found by the folder that it stands in."""
    agent = any_desk.new()
    running = any_desk.begin(agent, any_desk.delegate + "-asleep", "--json")
    command = tool_runs(any_desk)
    os.kill(any_desk.client_of(running).pid, signal.SIGKILL)
    assert any_desk.end(running).code == 14
    assert processes.find(command) is None
    assert "A long command." in any_desk.said(agent)
    any_desk.sound(agent)
    any_desk.recalled(agent)


def test_turns_in_threads_of_one_process_end_one_by_one(any_desk: Desk) -> None:
    """No signal reaches one: its reader looks into the log while it waits for the client."""
    first, second = any_desk.new(), any_desk.new()
    end_one_by_one(any_desk, first, second)
    assert ends(any_desk, second) == ["interrupt"]
