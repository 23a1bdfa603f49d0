"""What each command prints under --json is read by jq, whatever stands in it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import Any

import orjson
import pytest

from agentsdir.cli.command_line import COMMANDS

ODD = 'a "word" \\ \x01\x1b[1m\x7f \u2028 \u202e \U0001f98a\r\nend'
PERSON = ("--connector", "chat", "--user", ODD, "--channel", "home")


LIST = '{"id":1,"verb":"list"}\n'


def outputs(shell: Any) -> list[tuple[str, Any]]:
    """Run each command that there is under --json; return their names and what they left."""
    printed: list[tuple[str, Any]] = []

    def run(*arguments: str, code: int = 0, **options: Any) -> Any:
        done = shell(*arguments, "--json", **options)
        assert done.code == code, done
        printed.append((arguments[0], done))
        return done

    agent = run("new", "--name", "demo").json["agentId"]
    sent = run("send", agent, stdin=ODD.encode()).json["messageId"]
    run("send", *PERSON, stdin=ODD.encode())
    (text,) = run("outbox").rows
    assert text["text"] == ODD
    run("spawn", "--parent", agent, stdin=ODD.encode())
    run("queue", agent, stdin=ODD.encode())
    run("interrupt", agent, "stop")
    run("clear-abort", agent)
    run("rename", agent, "other")
    run("tag", agent, "+hot")
    run("set", agent, f"cwd={shell.cwd}")
    run("permissions", "allow", "--here", "--provider", "claude", "Bash(make)")
    run("resolve", "most-recent-foreground")
    run("suspend", agent)
    run("resume", agent)
    run("inspect", agent, "--runtime")
    run("replay", agent)
    run("snapshot", agent)
    run("log", agent)
    run("last", agent)
    run("wait", sent)
    run("open", agent, code=2)
    run("parse", str(shell.transcript(agent)))
    run("follow", "-", stdin=shell.ok("replay", agent, "--events").out.encode())
    run("list")
    run("restore")
    run("reset", agent, ODD)
    run("export", "--bundle", agent, "bundle.tar")
    run("fork", agent)
    run("import", "bundle.tar")
    run("archive", agent)
    run("archive", "--undo", agent)
    (shell.folder(agent) / "session.json").write_bytes(b"{}\n")
    run("validate", code=1)
    run("restore")
    run("close", agent)
    run("rm", "--yes", agent)
    served = shell.process("chat", "--jsonl", stdin=None, input=LIST, stdout=subprocess.PIPE)
    named = run("schema")
    printed.append(("chat", replace(named, code=served.returncode, out=served.stdout, err="")))
    run("adapters")
    run("trust", str(shell.root))
    run("config", "max_slots=3")
    run("config")
    return printed


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.feature("C-12")
def test_jq_reads_what_each_command_prints(shell: Any) -> None:
    """As the values that any other JSON reader gets."""
    printed = outputs(shell)
    assert {command for command, _ in printed} == set(COMMANDS)
    for command, done in printed:
        read = ["jq", "-c", "."]
        jq = subprocess.run(read, input=done.out.encode(), capture_output=True, check=True)
        values = [orjson.loads(line) for line in jq.stdout.split(b"\n") if line]
        assert values == done.documents, command
        assert (values == []) is (command in ("export", "open")), command
