"""Commands whose lock another process keeps: they say so, and give up."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from commands import until

from agentsdir.formats.store import locks

TURN, LOG, ROOT, SLOTS = "TURN", "LOG", "ROOT", "SLOTS"
# Every command that takes a lock, with each lock that it waits for.
COMMANDS = [
    (ROOT, "new"),
    (ROOT, "new --get --type heartbeat"),
    (ROOT, "send --cron nightly hi"),
    (ROOT, "send --create other hi"),
    (ROOT, "spawn task --parent AGENT"),
    (ROOT, "rename AGENT other"),
    (ROOT, "close AGENT"),
    (ROOT, "fork AGENT"),
    (ROOT, "archive AGENT"),
    (ROOT, "rm --yes AGENT"),
    (ROOT, "import bundle.tar --cwd ."),
    (LOG, "send AGENT hi"),
    (LOG, "send --no-wait AGENT hi"),
    (LOG, "queue AGENT hi"),
    (LOG, "spawn task --parent AGENT"),
    (LOG, "interrupt AGENT hi"),
    (LOG, "clear-abort AGENT"),
    (LOG, "close AGENT"),
    (LOG, "reset AGENT"),
    (LOG, "suspend AGENT"),
    (LOG, "rename AGENT other"),
    (LOG, "set AGENT cwd=."),
    (LOG, "tag AGENT x"),
    (LOG, "archive AGENT"),
    (LOG, "rm --yes AGENT"),
    (LOG, "outbox AGENT --done vsr0ow0jz9pn2w8ca864ficd"),
    (TURN, "send AGENT hi --wait 0.2"),
    (TURN, "suspend AGENT --wait 0.2"),
    (TURN, "reset AGENT --wait 0.2"),
    (TURN, "set AGENT cwd=/ --wait 0.2"),
    (SLOTS, "send other hi"),
    (SLOTS, "send other hi --wait 0.2"),
]


def lock_of(shell: Any, agent: str, which: str) -> Path:
    """Return a lock's file."""
    return {
        TURN: shell.folder(agent) / ".turn",
        LOG: shell.folder(agent) / ".lock",
        ROOT: shell.root / ".lock",
        SLOTS: shell.root / "slots" / ".lock",
    }[which]  # type: ignore[no-any-return]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a fraction of a second where a command waits for many."""
    for name, seconds in {"PATIENCE": 0.3, "LEAST": 0.1, "SAY_AFTER": 0.1}.items():
        monkeypatch.setattr(locks, name, seconds)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("which", "line"), COMMANDS, ids=lambda one: one)
def test_a_lock_that_is_kept_is_named_and_not_waited_for_for_ever(
    shell: Any, which: str, line: str
) -> None:
    """Exit 11; while it waits it says for what."""
    agent = shell.new("--name", "st")
    shell.ok("send", agent, "hello")
    shell.new("--name", "other" if which == SLOTS else "third")
    shell.ok("export", "--bundle", agent, "bundle.tar")
    words = [agent if word == "AGENT" else word for word in line.split()]
    with locks.hold(lock_of(shell, agent, which)):
        done = shell(*words)
    assert done.code == 11, done
    first, last = done.err.splitlines()
    assert first.startswith("agentsdir: waiting: "), first
    assert "is held by another thread of this process" in first
    assert "is held by another thread of this process" in last
    assert shell("validate").code == 0


@pytest.mark.usefixtures("hasty")
def test_the_waits_of_a_command_count_together(shell: Any) -> None:
    """Two children whose logs are kept: the second one is given what the first wait left."""
    parent = shell.new()
    kids = [
        shell.new("--type", "subagent", "--parent", parent, "--name", name) for name in ("a", "b")
    ]
    with ExitStack() as held:
        for kid in kids:
            held.enter_context(locks.hold(shell.folder(kid) / ".lock"))
        done = shell("close", parent)
    assert done.code == 1
    assert done.err.count("agentsdir: waiting: ") == 1
    assert all(f"agent {kid} was not closed" in done.err for kid in kids)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "line", ["send --create other hi", "send --ephemeral hi", "spawn task --parent AGENT"]
)
def test_an_agent_that_is_to_be_made_is_waited_for_no_longer_than_asked(
    shell: Any, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """The lock of the agents directory counts too; else this would take an hour."""
    monkeypatch.setattr(locks, "PATIENCE", 3600)
    agent = shell.new()
    words = [agent if word == "AGENT" else word for word in line.split()]
    with locks.hold(shell.root / ".lock"):
        assert shell(*words, "--wait", "0.2").code == 11


def test_a_limit_is_for_the_sum_of_all_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that ends with the lock counts against what a user asked for only."""
    waits = locks.Waits()
    waits.limit = 10.0
    assert waits.left(locks.FOREVER, brief=False) == 10
    waits.add(4.0)
    waits.add(5.0, in_vain=True)
    assert waits.left(locks.FOREVER, brief=False) == 1
    assert waits.left(0.5, brief=False) == 0.5
    waits.add(5.0)
    assert waits.left(locks.FOREVER, brief=False) == 0

    monkeypatch.setattr(locks, "PATIENCE", 30.0)
    unlimited = locks.Waits()
    unlimited.add(1000.0)  # for another turn, or for busy writers
    assert unlimited.left(locks.FOREVER, brief=False) == locks.NEVER
    assert unlimited.left(locks.FOREVER, brief=True) == 30
    unlimited.add(25.0, in_vain=True)
    assert unlimited.left(locks.FOREVER, brief=True) == 5


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("verb", ["interrupt", "close"])
def test_a_turn_that_is_stopped_is_not_waited_for_for_ever(shell: Any, verb: str) -> None:
    """It was asked to end, and does once its process goes on."""
    (shell.cwd / "long.jsonl").write_text('{"type":"sleep","seconds":60}\n')
    agent = shell.script(str(shell.cwd / "long.jsonl"))
    process = shell.start("send", agent, "go")
    log = shell.folder(agent) / "events.jsonl"
    lock = shell.folder(agent) / ".lock"
    begun = b'"event":"block"'
    until(lambda: begun in log.read_bytes() and not locks.is_held(lock), "that the turn has begun")
    process.send_signal(signal.SIGSTOP)
    try:
        done = shell(verb, agent)
    finally:
        process.send_signal(signal.SIGCONT)
    assert (done.code, "it was asked to end" in done.err) == (11, True), done
    process.communicate(timeout=60)
    assert process.returncode == 130


HOLDING = """
import fcntl, sys
with open(sys.argv[1], "a") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_who_keeps_a_lock_is_named(shell: Any) -> None:
    """By number, where the system says it: a person can look at that process."""
    agent = shell.new()
    program = [sys.executable, "-c", HOLDING, str(shell.folder(agent) / ".turn")]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        done = shell("send", agent, "hi", "--wait", "0")
        holder.communicate()
    assert done.code == 11
    if Path("/proc/locks").exists():
        assert f"held by another process ({holder.pid})" in done.err
