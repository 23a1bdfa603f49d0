"""`agentsdir interrupt` and `agentsdir reset`, as a person meets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import until

from agentsdir.schemas import check

LONG = 60.0
SLOW = """
{"type":"block_start","blockId":"a","block":{"type":"assistant_text","id":"a","content":""}}
{"type":"text_delta","blockId":"a","delta":"so far"}
{"type":"sleep","seconds":600}
"""


@pytest.fixture
def at_work(shell: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that has another process run a long turn; it returns agent and process."""
    path = tmp_path / "slow.jsonl"
    started: list[subprocess.Popen[bytes]] = []

    def start(
        *, options: tuple[str, ...] = (), script: str = SLOW, **how: Any
    ) -> tuple[str, subprocess.Popen[bytes]]:
        path.write_text(script.lstrip())
        agent = shell.script(str(path), *options)
        command = [sys.executable, "-m", "agentsdir.cli.main", "send", agent, "go"]
        variables = {"HOME": str(shell.home), "AGENTSDIR_ROOT": str(shell.root), "USER": "me"}
        how = {"preexec_fn": heed_sigint, **how}
        started.append(
            subprocess.Popen(command, cwd=shell.cwd, env=variables, stdout=subprocess.PIPE, **how)
        )
        assert started[-1].stdout is not None
        assert os.read(started[-1].stdout.fileno(), 100) == b"so far"
        return agent, started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def heed_sigint() -> None:
    """Be a job in front of a shell, also where the test run is none."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def ignore_sigint() -> None:
    """Be a job that a shell started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.feature("A-04")
@pytest.mark.parametrize("background", [False, True], ids=["in front", "in the background"])
def test_a_turn_is_ended_from_another_shell(shell: Any, at_work: Any, background: bool) -> None:
    """It returns when the turn has ended; what was said is kept, and the sender exits 130."""
    agent, process = at_work(preexec_fn=ignore_sigint if background else heed_sigint)
    done = shell.ok("interrupt", agent, "--reason", "wrong branch", "--json")
    assert check("interrupted", done.json) == []
    (turn,) = done.json["turns"]
    assert (turn["agentId"], turn["ended"]) == (agent, True)
    assert process.wait(LONG) == 130
    log = shell.log(agent)
    assert [record["event"] for record in log[-2:]] == ["turn.aborted", "message.delivered"]
    (asked,) = [record["data"] for record in log if record["event"] == "abort.requested"]
    assert (asked["message"], asked["turn_id"]) == ("wrong branch", turn["turnId"])
    said = [record["data"]["block"] for record in log if record["event"] == "block"]
    assert said[-1]["content"] == "so far"
    assert (shell("validate").code, shell("validate").out) == (0, "")


def test_one_may_ask_and_not_wait(shell: Any, at_work: Any) -> None:
    """The request is on disk then, and the holder sees it."""
    agent, process = at_work()
    assert shell.ok("interrupt", agent, "--no-wait").out == ""
    assert process.wait(LONG) == 130


def test_a_process_that_dies_meanwhile_is_said(shell: Any, at_work: Any) -> None:
    """Who waits does not wait for ever."""
    agent, process = at_work()
    process.send_signal(signal.SIGSTOP)
    asking = subprocess.Popen(
        [sys.executable, "-m", "agentsdir.cli.main", "interrupt", agent],
        env={"HOME": str(shell.home), "AGENTSDIR_ROOT": str(shell.root)},
        stderr=subprocess.PIPE,
    )
    until(lambda: shell.log(agent)[-1]["event"] == "abort.requested", "it is asked to end")
    process.kill()
    _, said = asking.communicate(timeout=LONG)
    assert asking.returncode == 1
    assert b"agentsdir restore" in said


def test_an_idle_agent_is_left_a_message_all_the_same(shell: Any) -> None:
    """It waits for the agent's next turn."""
    agent = shell.new()
    done = shell.ok("interrupt", agent, "use the other branch", "--json").json
    assert check("interrupted", done) == []
    assert done["turns"] == []
    (waiting,) = shell.ok("inspect", agent).json["pending"]
    assert (waiting["messageId"], waiting["sender"]) == (done["messageId"], "cli")


@pytest.mark.feature("A-03", "A-04")
def test_a_message_that_comes_with_an_interrupt_waits_for_the_next_turn(
    shell: Any, at_work: Any
) -> None:
    """The turn ends its own message and no other; `inspect` shows what waits, and from whom."""
    agent, process = at_work()
    queued = shell.ok("queue", agent, "before").out.strip()
    shell.ok("interrupt", agent, "use the other branch")
    assert process.wait(LONG) == 130
    seen = shell.ok("inspect", agent).json
    assert seen["pending"][0]["messageId"] == queued
    assert seen["pending"][1]["content"][0]["text"] == "use the other branch"
    assert (seen["status"], seen["isAborted"]) == ("idle", False)
    page = shell.ok("inspect", agent, tty=True).out
    assert "user cli: use the other branch" in page


@pytest.mark.feature("A-03", "A-06")
def test_an_interrupt_reaches_all_below_and_none_above(shell: Any, at_work: Any) -> None:
    """Each in its own process; who is not at work is not asked."""
    top, above = at_work()
    middle, process = at_work(options=("--type", "subagent", "--parent", top, "--name", "middle"))
    low, below = at_work(options=("--type", "subagent", "--parent", middle, "--name", "low"))
    idle = shell.new("--type", "subagent", "--parent", low, "--name", "idle")
    done = shell.ok("interrupt", middle, "--json").json
    assert [turn["agentId"] for turn in done["turns"]] == [middle, low]
    assert all(turn["ended"] for turn in done["turns"])
    assert (process.wait(LONG), below.wait(LONG)) == (130, 130)
    reasons = [
        record["data"]["reason"]
        for agent in (middle, low)
        for record in shell.log(agent)
        if record["event"] in ("abort.requested", "turn.aborted")
    ]
    assert reasons == ["interrupt", "interrupt", "parent", "parent"]
    assert above.poll() is None
    assert [record["event"] for record in shell.log(idle)] == ["session.created"]
    assert shell.ok("inspect", low).json["depth"] == 2
    assert (shell("validate").code, shell("validate").out) == (0, "")
    shell.ok("close", top)  # else the process that brings it the notices waits on for its turn


def test_a_parent_that_is_idle_passes_an_interrupt_on(shell: Any, at_work: Any) -> None:
    """Its subagent's turn ends, whichever process runs it; the parent has no request in its log."""
    top = shell.new()
    low, process = at_work(options=("--type", "subagent", "--parent", top, "--name", "low"))
    shell.ok("interrupt", top)
    assert process.wait(LONG) == 130
    assert "abort.requested" not in [record["event"] for record in shell.log(top)]
    assert shell.log(low)[-2]["data"]["reason"] == "parent"


SHORT = """
{"type":"block_start","blockId":"a","block":{"type":"assistant_text","id":"a","content":""}}
{"type":"text_delta","blockId":"a","delta":"so far"}
{"type":"sleep","seconds":2}
"""


@pytest.mark.feature("A-03", "A-04")
def test_a_request_that_is_taken_back_before_it_is_heeded_ends_nothing(
    shell: Any, at_work: Any
) -> None:
    """The holder was stopped all the while, and finds both in its log."""
    agent, process = at_work(script=SHORT)
    process.send_signal(signal.SIGSTOP)
    shell.ok("interrupt", agent, "--no-wait")
    assert shell.ok("inspect", agent).json["isAborted"] is True
    cleared = shell.ok("clear-abort", agent, "--json").json
    assert check("abort-cleared", cleared) == []
    assert cleared["turnId"] is not None
    assert shell.ok("inspect", agent).json["isAborted"] is False
    process.send_signal(signal.SIGCONT)
    assert process.wait(LONG) == 0
    assert shell.log(agent)[-2]["event"] == "turn.complete"
    assert (shell("validate").code, shell("validate").out) == (0, "")


def test_a_request_that_was_heeded_cannot_be_taken_back(shell: Any, at_work: Any) -> None:
    """Nothing is recorded then, nor for an agent that was never asked."""
    agent, process = at_work()
    assert shell.ok("clear-abort", agent, "--json").json["turnId"] is None
    shell.ok("interrupt", agent)
    process.wait(LONG)
    before = shell.log(agent)
    assert shell.ok("clear-abort", agent, "--json").json["turnId"] is None
    assert shell.log(agent) == before


@pytest.mark.feature("A-04", "A-06")
def test_agents_are_closed_from_another_shell(shell: Any, at_work: Any) -> None:
    """With those below; turns end, a sender that waits gets an error, and all of it is in JSON."""
    top, above = at_work()
    low, below = at_work(options=("--type", "subagent", "--parent", top, "--name", "low"))
    waiting = shell.start("send", top, "later")
    until(lambda: shell.ok("inspect", top).json["pending"], "the message waits")
    rows = shell.ok("close", top, "--json").rows
    assert [check("closed", row) for row in rows] == [[], []]
    assert [row["agentId"] for row in rows] == [top, low]
    assert all(row["turn"]["ended"] for row in rows)
    assert (above.wait(LONG), below.wait(LONG)) == (130, 130)
    said, _ = waiting.communicate(timeout=LONG)
    assert waiting.returncode == 13
    assert b"closed" in said
    assert shell.ok("close", top, "--json").rows[0]["before"] is True
    listed = {row["agentId"]: row["status"] for row in shell.ok("list", "--all").rows}
    assert (listed[top], listed[low]) == ("closed", "closed")
    for verb in (("send", top, "x"), ("queue", top, "x"), ("interrupt", top), ("reset", top)):
        assert shell(*verb).code == 13
    assert (shell("validate").code, shell("validate").out) == (0, "")


@pytest.mark.parametrize("verb", ["interrupt", "close"])
def test_a_turns_own_program_does_not_wait_for_its_end(shell: Any, at_work: Any, verb: str) -> None:
    """It is part of the turn, and would wait for itself; the holder is stopped to show that."""
    agent, process = at_work()
    (turn,) = [one["data"]["turn_id"] for one in shell.log(agent) if one["event"] == "turn.start"]
    process.send_signal(signal.SIGSTOP)
    marks = {"AGENTSDIR_ROOT": str(shell.root.resolve()), "AGENTSDIR_AGENT": agent}
    shell.variables = {**marks, "AGENTSDIR_TURN": turn}
    shell.ok(verb, agent)
    process.send_signal(signal.SIGCONT)
    assert process.wait(LONG) == 130


@pytest.mark.feature("A-11")
def test_sessions_without_input_are_suspended_in_one_sweep(shell: Any) -> None:
    """Those that were active; the time is an argument, or a setting."""
    used, never = shell.new(), shell.new()
    shell.ok("send", used, "hi")
    assert shell.ok("suspend", "--idle", "3600").out == ""
    assert shell("suspend", "--idle").code == 2
    assert shell("suspend", "--idle", "soon").code == 2
    assert shell("suspend").code == 2
    (row,) = shell.ok("suspend", "--idle", "0", "--json").rows
    assert check("session-list", row) == []
    assert (row["agentId"], row["state"]) == (used, "suspended")
    assert shell.ok("inspect", never).json["state"] == "created"
    shell.ok("send", used, "hi")
    (shell.root / "settings.toml").write_text("idle_timeout = 0.000001\n")
    assert shell.ok("suspend", "--idle").out.split() == [used]


@pytest.mark.feature("G-02", "G-03")
@pytest.mark.parametrize("state", ["created", "active", "suspended"])
def test_a_reset_begins_a_new_segment(shell: Any, state: str) -> None:
    """In every state but the last; the row is printed, and the script begins anew."""
    agent = shell.script("two-turns.jsonl")
    if state != "created":
        shell.ok("send", agent, "one")
    if state == "suspended":
        shell.ok("suspend", agent)
    row = shell.ok("reset", agent, "a new task", "--json").json
    assert check("session-list", row) == []
    assert row["state"] == state
    assert shell.ok("send", agent, "two").out == "first answer\n"
    history = (shell.folder(agent) / "history.jsonl").read_bytes().splitlines()
    markers = [orjson.loads(line) for line in history if b'"reset"' in line]
    assert [marker["message"] for marker in markers] == ["a new task"]
    assert (shell("validate").code, shell("validate").out) == (0, "")
