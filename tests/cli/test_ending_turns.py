"""`agentsdir interrupt` and `agentsdir reset`, as a person meets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

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
    script = tmp_path / "slow.jsonl"
    script.write_text(SLOW.lstrip())
    started: list[subprocess.Popen[bytes]] = []

    def start(**options: Any) -> tuple[str, subprocess.Popen[bytes]]:
        agent = shell.script(str(script))
        command = [sys.executable, "-m", "agentsdir.cli.main", "send", agent, "go"]
        variables = {"HOME": str(shell.home), "AGENTSDIR_ROOT": str(shell.root), "USER": "me"}
        started.append(
            subprocess.Popen(
                command, cwd=shell.cwd, env=variables, stdout=subprocess.PIPE, **options
            )
        )
        assert started[-1].stdout is not None
        assert os.read(started[-1].stdout.fileno(), 100) == b"so far"
        return agent, started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def events(shell: Any, agent: str) -> list[dict[str, Any]]:
    """Return the records of an agent's log."""
    lines = (shell.folder(agent) / "events.jsonl").read_bytes().splitlines()
    return [orjson.loads(line) for line in lines]


def ignore_sigint() -> None:
    """Be a job that a shell started in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize("background", [False, True], ids=["in front", "in the background"])
def test_a_turn_is_ended_from_another_shell(shell: Any, at_work: Any, background: bool) -> None:
    """It returns when the turn has ended; what was said is kept, and the sender exits 130."""
    agent, process = at_work(preexec_fn=ignore_sigint if background else None)
    done = shell.ok("interrupt", agent, "--reason", "wrong branch", "--json")
    assert check("interrupted", done.json) == []
    (turn,) = done.json["turns"]
    assert (turn["agentId"], turn["ended"]) == (agent, True)
    assert process.wait(LONG) == 130
    log = events(shell, agent)
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


def test_a_turn_whose_process_died_cannot_be_asked(shell: Any, at_work: Any) -> None:
    """Exit 13, and the hint says what ends it."""
    agent, process = at_work()
    process.kill()
    process.wait(LONG)
    before = events(shell, agent)
    done = shell("interrupt", agent, "--json")
    assert (done.code, done.error["kind"]) == (13, "not-running")
    assert f"agentsdir restore {agent}" in done.error["hint"]
    assert events(shell, agent) == before
    shell.ok("restore")


def test_a_process_that_dies_meanwhile_is_said(shell: Any, at_work: Any) -> None:
    """Who waits does not wait for ever."""
    agent, process = at_work()
    process.send_signal(signal.SIGSTOP)
    asking = subprocess.Popen(
        [sys.executable, "-m", "agentsdir.cli.main", "interrupt", agent],
        env={"HOME": str(shell.home), "AGENTSDIR_ROOT": str(shell.root)},
        stderr=subprocess.PIPE,
    )
    end = time.monotonic() + LONG
    while events(shell, agent)[-1]["event"] != "abort.requested":
        assert time.monotonic() < end
        time.sleep(0.01)
    process.kill()
    _, said = asking.communicate(timeout=LONG)
    assert asking.returncode == 1
    assert b"agentsdir restore" in said


def test_an_idle_agent_is_not_interrupted(shell: Any) -> None:
    """Exit 13, without a record."""
    agent = shell.new()
    before = events(shell, agent)
    assert shell("interrupt", agent).code == 13
    assert events(shell, agent) == before


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


def test_a_reset_agent_at_work_is_locked(shell: Any, at_work: Any) -> None:
    """Exit 11; nothing is recorded."""
    agent, _ = at_work()
    before = events(shell, agent)
    assert shell("reset", agent).code == 11
    assert events(shell, agent) == before
