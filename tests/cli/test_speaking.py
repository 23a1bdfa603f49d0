"""Speaking to an agent, and hearing why it does not answer: modes, retries, endings, turns."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import until

LONG = 60.0


def enqueued(shell: Any, agent: str) -> dict[str, Any]:
    """Return the last message that an agent was sent."""
    return [r["data"] for r in shell.log(agent) if r["event"] == "message.enqueued"][-1]


@pytest.fixture
def at_work(shell: Any) -> Iterator[Callable[..., tuple[str, subprocess.Popen[bytes]]]]:
    """Return what makes an agent that is in a turn until it is ended, and its `send`."""
    begun: list[subprocess.Popen[bytes]] = []

    def make(*options: str) -> tuple[str, subprocess.Popen[bytes]]:
        (shell.cwd / "long.jsonl").write_text('{"type":"sleep","seconds":60}\n')
        agent = shell.new("--provider", "script", "--option", "file=long.jsonl")
        process = shell.start("send", agent, "go", *options)
        begun.append(process)
        until(lambda: shell.log(agent)[-1]["event"] == "block", "that the turn has begun")
        return agent, process

    yield make
    for process in begun:
        process.stdout.close()


def in_turn_of(shell: Any, agent: str) -> None:
    """Go on as the program of an agent's turn."""
    (turn,) = [r["data"]["turn_id"] for r in shell.log(agent) if r["event"] == "turn.start"]
    root = str(shell.root.resolve())
    shell.variables = {"AGENTSDIR_ROOT": root, "AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": turn}


@pytest.mark.parametrize("verb", ["interrupt", "close"])
def test_a_send_says_that_another_command_ended_its_turn(
    shell: Any, at_work: Any, verb: str
) -> None:
    """And which; a person at the terminal who did it would know."""
    agent, process = at_work("--json")

    shell.ok(verb, agent)

    said, _ = process.communicate(timeout=LONG)
    assert process.returncode == 130
    error = json.loads(said)
    assert (error["kind"], error["exitCode"]) == ("turn-aborted", 130)
    assert verb in error["message"]


def test_the_notice_of_a_turn_that_is_ended_is_run_by_another_process(
    shell: Any, at_work: Any
) -> None:
    """The parent of a subagent that was interrupted gets one, though its `send` is gone."""
    parent = shell.new()
    (shell.cwd / "long.jsonl").write_text('{"type":"sleep","seconds":60}\n')
    given = ("--provider", "script", "-o", "file=long.jsonl", "--name", "kid")
    process = shell.start("spawn", "--parent", parent, *given, "work")
    until(lambda: shell("inspect", "kid").code == 0, "that there is a child")
    kid = shell.ok("inspect", "kid").json["agentId"]
    until(lambda: shell.log(kid)[-1]["event"] == "block", "that its turn has begun")

    shell.ok("interrupt", kid)

    process.communicate(timeout=LONG)
    assert process.returncode == 130
    answered = until(
        lambda: [r for r in shell.log(parent) if r["event"] == "turn.complete"],
        "that the parent has looked at the notice",
    )
    assert "failed: Interrupted." in answered[-1]["data"]["response"]


def test_the_last_failure_can_be_said_again_without_its_id(shell: Any) -> None:
    """Nothing shows the id of a message that failed."""
    agent = shell.script("fails.jsonl")
    assert shell("send", agent, "--retry", "last").code == 2
    assert shell("send", agent, "try").code == 14
    first = enqueued(shell, agent)

    assert shell("send", agent, "--retry", "last").code == 14

    again = enqueued(shell, agent)
    assert (again["retry_of"], again["content"]) == (first["message_id"], first["content"])


@pytest.mark.parametrize(
    "option", [["--timeout", "5"], ["--events"], ["--record"], ["--wait", "1"],
               ["--permission-mode", "acceptEdits"]],
)  # fmt: skip
def test_an_option_without_effect_is_refused_with_no_wait(shell: Any, option: list[str]) -> None:
    """And nothing is sent."""
    agent = shell.new()
    done = shell("send", agent, "hi", "--no-wait", *option)
    assert (done.code, option[0] in done.err) == (2, True)
    assert [r["event"] for r in shell.log(agent)] == ["session.created"]


def test_in_a_turn_an_agent_does_not_wait_for_its_own_answer(shell: Any, at_work: Any) -> None:
    """It may speak to itself; what it leaves with an interrupt is its own, too."""
    agent, process = at_work()
    other = shell.new()
    in_turn_of(shell, agent)

    done = shell("send", "--to", agent, "--sync", "what do I think?")
    assert (done.code, "its own answer" in done.err) == (2, True)
    shell.ok("interrupt", other, "stop that")
    assert (enqueued(shell, other)["sender"], enqueued(shell, other)["kind"]) == (agent, "system")

    shell.variables = {}
    shell.ok("interrupt", agent)
    assert process.wait(LONG) == 130


def test_a_root_may_be_reached_through_a_link(shell: Any) -> None:
    """The way to it is the user's; what is in it is not followed."""
    shell.root.mkdir()
    link = shell.root.with_name("link")
    link.symlink_to(shell.root)

    agent = shell.ok("--root", str(link), "new").out.strip()

    assert shell.ok("--root", str(link), "send", agent, "hi").out == "hi\n"
    assert (shell.root / "agents" / agent).is_dir()


def test_a_connector_that_takes_too_long_has_not_taken(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ended, with what it started, and the text waits."""
    hook = shell.home / ".config" / "agentsdir" / "hooks" / "outgoing"
    hook.parent.mkdir(parents=True)
    pids = Path(shell.cwd) / "pids"
    hook.write_text(f"#!/bin/sh\nsleep 600 & echo $! $$ > {pids}\nwait\n")
    hook.chmod(0o700)
    monkeypatch.setattr("agentsdir.cli.hooks.OUTGOING_TIMEOUT", 1.0)

    done = shell("send", "--connector", "tg", "--user", "1", "--channel", "2", "--", "hi")

    assert (done.code, done.out) == (0, "hi\n")
    assert "took longer than 1 seconds" in done.err
    assert [row["text"] for row in shell("outbox").rows] == ["hi"]
    for pid in pids.read_text().split():
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "that the hook is gone")


def test_retry_last_goes_back_past_no_message_that_was_answered(shell: Any, tmp_path: Path) -> None:
    """It is refused, and names the last message that failed."""
    script = tmp_path / "s.jsonl"
    failed = '{"type":"turn"}\n{"type":"error","kind":"overloaded","message":"later"}\n'
    script.write_text(failed + '{"type":"turn"}\n')
    agent = shell.script(str(script))
    assert shell("send", agent, "one").code == 14
    shell.ok("send", agent, "two")
    done = shell("send", agent, "--retry", "last", "--json")
    assert (done.code, done.error["kind"]) == (13, "not-failed")
    assert "--retry " in done.error["hint"]


def test_a_root_that_is_named_by_another_path_is_the_turns_own(shell: Any, tmp_path: Path) -> None:
    """By device and inode: as in a tool call that goes through a link."""
    from agentsdir.cli.environment import Environment

    shell.new()
    (tmp_path / "link").symlink_to(shell.root)
    marks = {"AGENTSDIR_AGENT": "a", "AGENTSDIR_TURN": "t"}
    for given, used in ((shell.root, tmp_path / "link"), (tmp_path / "link", shell.root)):
        variables = {**marks, "AGENTSDIR_ROOT": str(given)}
        nothing: Any = None
        env = Environment(nothing, nothing, nothing, variables, tmp_path, tmp_path, root=str(used))
        assert env.turn == ("a", "t")
    (tmp_path / "other").mkdir()
    env = Environment(
        nothing, nothing, nothing, variables, tmp_path, tmp_path, root=str(tmp_path / "other")
    )
    assert env.turn is None


def test_a_script_that_is_no_regular_file_is_refused(shell: Any, tmp_path: Path) -> None:
    """A FIFO would block a process that asks its session for anything."""
    import os

    os.mkfifo(tmp_path / "fifo")
    agent = shell.script(str(tmp_path / "fifo"))
    done = shell("send", agent, "hi", "--json")
    assert (done.code, done.error["kind"]) == (14, "bad-script")


def test_no_word_of_a_stranger_is_an_option(shell: Any, tmp_path: Path) -> None:
    """With a connector a prompt stands after two dashes or on standard input."""
    talk = ("send", "--connector", "tg", "--user", "1", "--channel", "2")
    secret = tmp_path / "secret"
    secret.write_text('"secret"')
    for words in ([f"--messages={secret}"], ["hi"], ["hi", "--json"]):
        assert shell(*talk, *words).code == 2
    assert shell(*talk, "--", f"--messages={secret}").code == 0
    assert shell(*talk, stdin=b"- buy milk").code == 0
