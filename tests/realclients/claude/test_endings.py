"""Turns that are ended from outside: what was done until then stays, and nothing runs on."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from claude_desk import ClaudeDesk as Desk
from commands import until
from threaded import end_one_by_one, tool_runs

from agentsdir.adapters import processes


def ends(desk: Desk, agent: str) -> list[dict[str, Any]]:
    """Return how the turns ended, by event and reason or kind."""
    return [
        {"event": one["event"], "why": one["data"].get("reason") or one["data"].get("kind")}
        for one in desk.log(agent)
        if one["event"] in ("turn.complete", "turn.error", "turn.aborted")
    ]


ABORTED = {"event": "turn.aborted", "why": "interrupt"}
DONE = {"event": "turn.complete", "why": None}


def goes_on(desk: Desk, agent: str) -> list[str]:
    """Run a next turn, and return all that the model was sent for it."""
    done = desk.send(agent, "again")
    assert (done.code, done.out) == (0, "This is the next turn.\n"), done
    desk.sound(agent)
    return desk.api.of("again")[-1].texts


def test_an_interrupt_keeps_what_was_said_so_far(any_desk: Desk) -> None:
    """`interrupt` returns when the turn has ended; what the model had said is the agent's."""
    agent = any_desk.new()
    running = any_desk.begin(agent, "stall", "--events")
    until(lambda: "thinking" in any_desk.types(agent), "the first thought")
    asked = any_desk("interrupt", agent)
    assert asked.code == 0, asked
    assert any_desk.end(running).code == 130
    assert ends(any_desk, agent) == [ABORTED]
    any_desk.sound(agent)
    goes_on(any_desk, agent)
    assert ends(any_desk, agent) == [ABORTED, DONE]


def test_a_signal_to_send_ends_its_turn_and_all_that_the_turn_runs(any_desk: Desk) -> None:
    """In the middle of a tool: the command is gone, and the call has a result."""
    agent = any_desk.new()
    for turn, number in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), 1):
        (any_desk.work / "begun").unlink(missing_ok=True)
        running = any_desk.begin(agent, "sleeper")
        command = tool_runs(any_desk)
        running.send_signal(number)
        assert any_desk.end(running).code == 128 + number
        assert processes.find(command) is None
        assert ends(any_desk, agent) == [ABORTED] * turn
        # A call that the client began to print and did not end is superseded by the transcript's.
        blocks = [b for b in any_desk.blocks(agent).values() if not b.get("superseded")]
        calls = [b["toolUseId"] for b in blocks if b["type"] == "tool_use"]
        answered = [b["toolUseId"] for b in blocks if b["type"] == "tool_result"]
        assert len(calls) == turn
        assert answered == calls
        any_desk.sound(agent)
    goes_on(any_desk, agent)


@pytest.mark.feature("C-05", "G-04")
def test_a_send_that_is_killed_leaves_nothing_running_after_restore(any_desk: Desk) -> None:
    """Kill -9 in the middle of a tool: the client notices, and `restore` ends what it left."""
    agent = any_desk.new()
    running = any_desk.begin(agent, "sleeper")
    tool_runs(any_desk)
    any_desk.kill(running)
    restored = any_desk("restore", "--json")
    assert restored.code == 0, restored
    any_desk.quiet()
    assert ends(any_desk, agent) == [{"event": "turn.aborted", "why": "crash"}]
    sent = goes_on(any_desk, agent)
    assert any("A long command." in text for text in sent)


def test_a_send_after_a_killed_one_needs_no_restore(any_desk: Desk) -> None:
    """The next turn does what `restore` would, first."""
    agent = any_desk.new()
    running = any_desk.begin(agent, "sleeper")
    command = tool_runs(any_desk)
    any_desk.kill(running)
    goes_on(any_desk, agent)
    assert processes.find(command) is None
    assert ends(any_desk, agent) == [{"event": "turn.aborted", "why": "crash"}, DONE]


def test_a_send_killed_while_the_model_speaks_loses_no_turn_before_it(any_desk: Desk) -> None:
    """What was logged stays; the next turn is sent what came before."""
    agent = any_desk.new()
    any_desk.send(agent, "hello")
    running = any_desk.begin(agent, "stall")
    until(lambda: len(any_desk.said(agent, "thinking")) == 2, "the second thought")
    any_desk.kill(running)
    sent = goes_on(any_desk, agent)
    assert "Good day." in sent
    assert [one["why"] for one in ends(any_desk, agent)] == [None, "crash", None]


def test_a_client_that_is_killed_fails_its_turn(any_desk: Desk) -> None:
    """Its command is ended, the call is answered, and the next turn runs."""
    agent = any_desk.new()
    running = any_desk.begin(agent, "sleeper", "--json")
    command = tool_runs(any_desk)
    client = any_desk.client_of(running)
    os.kill(client.pid, signal.SIGKILL)
    done = any_desk.end(running)
    assert (done.code, done.error["kind"]) == (14, "cut-stream"), done
    assert processes.find(command) is None
    assert [one["why"] for one in ends(any_desk, agent)] == ["cut-stream"]
    any_desk.quiet()
    goes_on(any_desk, agent)


def test_ctrl_c_at_the_terminal_reaches_the_client_only_through_us(desk: Desk) -> None:
    """The client is in a session of its own."""
    agent = desk.new()
    running = desk.begin(agent, "sleeper")
    tool_runs(desk)
    client = desk.client_of(running)
    assert os.getsid(client.pid) == client.pid
    running.send_signal(signal.SIGINT)
    assert desk.end(running).code == 130
    desk.sound(agent)


def test_turns_in_threads_of_one_process_end_one_by_one(any_desk: Desk) -> None:
    """No signal reaches one: its reader looks into the log while it waits for the client."""
    first, second = any_desk.new(), any_desk.new()
    end_one_by_one(any_desk, first, second)
    assert [one["why"] for one in ends(any_desk, second)] == ["interrupt"]
