"""`agentsdir rm`: what goes, what stays, and who is asked."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from typist import Typist

from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import withdraw_agent
from agentsdir.formats.store.files import Disk
from agentsdir.formats.store.layout import Layout
from agentsdir.schemas import check


def left(shell: Any) -> list[str]:
    """Return the names of all that stands among the agents."""
    return sorted(path.name for path in (shell.root / "agents").iterdir())


def waiting_sender(shell: Any, agent: str) -> subprocess.Popen[str]:
    """Start a `send` to an agent whose turn is held; return it when its message is queued."""
    log = shell.folder(agent) / "events.jsonl"
    size = log.stat().st_size
    process = subprocess.Popen(
        [sys.executable, "-m", "agentsdir.cli.main", "send", "--json", agent, "hi"],
        env=shell.environment(),
        cwd=shell.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while log.stat().st_size == size:
        assert process.poll() is None
    return process


def test_removed_agents_are_gone_with_all_they_had(shell: Any) -> None:
    """By id, name and prefix; the others are as they were."""
    one, two = shell.new("--name", "one"), shell.new("--name", "two")
    three, kept = shell.new(), shell.new("--name", "kept")
    shell.ok("send", "one", "hi")
    shell.ok("send", "kept", "hi")
    before = shell.tree()

    assert shell.ok("rm", "--yes", one, "two", three[:8]).out == ""

    assert left(shell) == [kept]
    assert shell("inspect", two).code == 10
    assert [row["name"] for row in shell.ok("list").rows] == ["kept"]
    kept_files = {path: data for path, data in before.items() if f"/{kept}/" in path}
    after = shell.tree()
    assert {path: after[path] for path in kept_files} == kept_files
    assert shell("validate").code == 0


def test_every_removal_is_a_line_of_json(shell: Any) -> None:
    """With the agent, in the order given, once each."""
    one, two = shell.new(), shell.new()

    rows = shell.ok("rm", "-y", "--json", two, one, two).rows

    wanted = [{"type": "removed", "agentId": agent, "durability": "always"} for agent in (two, one)]
    assert rows == wanted
    assert all(check("removed", row) == [] for row in rows)


@pytest.mark.parametrize("answer", [b"\x04", b"\n", b"n\n", b"nope\n", b"yess\n"])
def test_without_a_clear_yes_nothing_is_removed(shell: Any, answer: bytes) -> None:
    """At a terminal it asks once; enter, no and the end of input keep everything."""
    agent = shell.new("--name", "demo")
    shell.ok("send", agent, "what is\nthis?")
    before = shell.tree()

    with Typist(answer) as person:
        shell.terminal = person.terminal
        done = shell("rm", agent, stdin_tty=True)

    assert (done.code, done.out, done.err) == (1, "", "agentsdir: nothing was removed\n")
    asked = f"\n{agent}  demo  what is  1 turn\nRemove this agent for good? [y/N] "
    assert person.shown.startswith(asked)
    assert shell.tree() == before


@pytest.mark.parametrize("answer", [b"y\n", b"YES\n", b" y\n"])
def test_a_yes_removes_what_was_named(shell: Any, answer: bytes) -> None:
    """What cannot be read is named too."""
    agent, broken = shell.new(), shell.new()
    (shell.folder(broken) / "events.jsonl").unlink()

    with Typist(answer) as person:
        shell.terminal = person.terminal
        done = shell("rm", agent, broken, stdin_tty=True)

    assert (done.code, left(shell)) == (0, [])
    assert f"{agent}  0 turns\n{broken}  cannot be read: " in person.shown
    assert "Remove these 2 agents for good? [y/N] " in person.shown


def test_a_yes_that_was_typed_before_the_question_removes_nothing(shell: Any) -> None:
    """Keys typed ahead are thrown away."""
    agent = shell.new()

    with Typist(b"n\n") as person:
        person.type(b"y\ny\n")
        shell.terminal = person.terminal
        done = shell("rm", agent, stdin_tty=True)

    assert (done.code, left(shell)) == (1, [agent])


def test_without_a_terminal_yes_must_be_said(shell: Any) -> None:
    """The error names the option to a script that forgot it; what is piped in is no answer."""
    agent = shell.new()
    before = shell.tree()

    done = shell("rm", agent, stdin=b"y\n")

    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert shell.tree() == before


def test_a_name_that_no_agent_has_keeps_the_others_too(shell: Any) -> None:
    """Everything is looked up before anything is removed."""
    agent = shell.new()

    for name, code in (("nobody", 10), ("../x", 2), ("", 2)):
        assert shell("rm", "--yes", agent, name).code == code
        assert left(shell) == [agent]


def test_an_agent_at_work_is_refused_and_the_others_go(shell: Any) -> None:
    """The exit code tells, and the agent keeps every byte."""
    busy, free = shell.new(), shell.new()
    with locks.hold(shell.folder(busy) / ".turn"):
        done = shell("rm", "--yes", "--json", busy, free)

    assert (done.code, done.error["kind"]) == (11, "locked")
    assert [row["agentId"] for row in done.rows] == [free]
    assert left(shell) == [busy]
    assert shell("validate").code == 0


@pytest.mark.parametrize("damage", ["no log", "an empty log", "garbage", "a cut log", "no files"])
def test_a_damaged_agent_is_removed_by_its_id(shell: Any, damage: str) -> None:
    """What cannot be read need not be read."""
    agent = shell.new()
    shell.ok("send", agent, "hi")
    log = shell.folder(agent) / "events.jsonl"
    if damage == "no log":
        log.unlink()
    elif damage == "an empty log":
        log.write_bytes(b"")
    elif damage == "garbage":
        log.write_bytes(b"\x00\xff{\n" * 9)
    elif damage == "a cut log":
        log.write_bytes(log.read_bytes()[:700])
    else:
        for path in shell.folder(agent).iterdir():
            if path.is_file():
                path.unlink()

    shell.ok("rm", "--yes", agent)

    assert left(shell) == []


def test_links_in_an_agents_folder_are_removed_and_not_followed(shell: Any) -> None:
    """What they lead to is no part of the agent."""
    agent = shell.new()
    away = shell.home / "away"
    away.mkdir()
    (away / "precious").write_text("x")
    (shell.folder(agent) / "workspace").symlink_to(away)
    (shell.folder(agent) / "file").symlink_to(away / "precious")

    shell.ok("rm", "--yes", agent)

    assert left(shell) == []
    assert (away / "precious").read_text() == "x"


def test_children_of_a_removed_agent_stay(shell: Any) -> None:
    """They go on naming their parent, and can still be used."""
    parent = shell.new()
    child = shell.new("--type", "subagent", "--parent", parent, "--name", "kid")

    shell.ok("rm", "--yes", parent)

    assert shell.ok("inspect", "kid").json["descriptor"]["parentAgentId"] == parent
    shell.ok("send", child, "hi")
    assert shell("restore").code == 0
    assert shell("validate").code == 0


def test_a_name_and_a_key_are_free_again(shell: Any) -> None:
    """For the next agent."""
    shell.new("--type", "cron", "--cron", "nightly", "--name", "x")
    shell.ok("rm", "-y", "x")
    shell.new("--type", "cron", "--cron", "nightly", "--name", "x")


def test_a_sender_that_waits_for_a_removed_agent_gets_the_error_that_it_is_gone(shell: Any) -> None:
    """Exit 10, at once, and nothing of the agent is made again."""
    agent = shell.new()
    layout = Layout(shell.root)
    with locks.hold(shell.folder(agent) / ".turn"):
        sender = waiting_sender(shell, agent)
        with locks.hold(shell.folder(agent) / ".lock"):
            withdraw_agent(layout, layout.agent(agent), Disk())
    out, err = sender.communicate(timeout=60)

    assert (sender.returncode, out) == (10, "")
    assert '"no-such-agent"' in err
    assert not shell.folder(agent).exists()


def test_senders_and_a_removal_at_once_leave_all_or_nothing(shell: Any) -> None:
    """Each sender either had its turn or gets the error that the agent is gone."""
    agent = shell.new()
    with locks.hold(shell.folder(agent) / ".turn"):
        senders = [waiting_sender(shell, agent) for _ in range(3)]
    while (code := shell("rm", "--yes", agent).code) == 11:
        pass
    outputs = [sender.communicate(timeout=60) for sender in senders]

    assert code == 0
    assert {sender.returncode for sender in senders} <= {0, 10}, outputs
    assert left(shell) == []
