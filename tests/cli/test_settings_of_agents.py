"""`agentsdir set`: settings, modes, budgets, and a folder that no bundle or root chooses."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agentsdir.cli.services import local_day
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import AgentPaths
from agentsdir.schemas import check


def test_set_gives_an_agent_another_folder(shell: Any) -> None:
    """As a record of its own, once; the list and the native session have it."""
    agent = shell.new()
    (shell.cwd / "moved").mkdir()

    row = shell.ok("set", agent, "cwd=moved", "--json").json
    shell.ok("set", agent, "cwd=moved")
    shell.ok("set", agent, f"cwd=~/{os.path.relpath(shell.cwd / 'moved', shell.home)}")

    moved = str(shell.cwd / "moved")
    assert row["agentId"] == agent
    shown = shell.ok("inspect", agent).json
    assert (shown["cwd"], shown["native"]["cwd"]) == (moved, moved)
    assert [one["data"] for one in shell.log(agent) if one["event"] == "agent.set"] == [
        {"values": {"cwd": moved}}
    ]
    assert shell("validate").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["cwd=gone"],
        ["cwd="],
        ["colour=red"],
        ["cwd"],
        ["model=big"],
        ["system=Be brief."],
        ["permission-mode=plan"],
        ["permission-mode=yolo"],
        ["fallback=nobody"],
        ["budget=50"],
        ["budget=cost:2/day"],
        ["system=@gone"],
        ["budget=turns:3", "model=big"],
    ],
)
def test_set_refuses_what_is_no_setting(shell: Any, words: list[str]) -> None:
    """Exit 2, and nothing is recorded."""
    agent = shell.new()
    before = shell.log(agent)
    assert shell("set", agent, *words).code == 2
    assert shell.log(agent) == before


def test_settings_are_shown_and_changed_in_one_record(shell: Any) -> None:
    """As JSON of the schema in a pipe; an empty value takes one back to its default."""
    agent = shell.new("--provider", "claude", "--name", "fox", "--system", "Be brief.")
    (shell.cwd / "prompt.md").write_text("Be kind.\n")
    shell.ok(
        "set", "fox", "model=opus", "system=@prompt.md", "permission-mode=plan",
        "budget=turns:5,cost:2.50/day",
    )  # fmt: skip
    shell.ok("set", "fox", "model=opus", "system=Be kind.")
    shown = shell.ok("set", "fox").json
    assert check("agent-settings", shown) == []
    assert shown == {
        "type": "agent-settings", "agentId": agent, "name": "fox", "provider": "claude",
        "model": "opus", "permissionMode": "plan", "cwd": str(shell.cwd),
        "systemPrompt": "Be kind.", "fallbacks": [],
        "budget": {
            "limits": {"turns": 5, "cost": 2.5},
            "spent": {"tokens": 0, "turns": 0, "seconds": 0.0, "cost": 0},
            "freeAt": None,
        },
    }  # fmt: skip
    seen = shell.ok("inspect", "fox").json
    assert check("inspection", seen) == []
    names = ("model", "systemPrompt", "permissionMode", "budget")
    assert [seen[name] for name in names] == [shown[name] for name in names]

    shell.ok("set", "fox", "model=", "system=", "permission-mode=", "budget=")
    bare = shell.ok("set", "fox").json
    assert [bare[name] for name in names] == ["", "", None, None]
    assert [one["data"]["values"] for one in shell.log(agent) if one["event"] == "agent.set"] == [
        {
            "model": "opus", "system_prompt": "Be kind.", "permission_mode": "plan",
            "budget": {"turns": 5, "cost": 2.5},
        },
        {"model": "", "system_prompt": "", "permission_mode": "", "budget": {}},
    ]  # fmt: skip
    assert shell("validate").code == 0


def test_a_mode_that_no_log_grants_is_the_users_own(shell: Any) -> None:
    """It stands in the configuration, for this agent, and is said in words."""
    agent = shell.new("--provider", "claude", "--name", "fox")
    before = shell.log(agent)
    done = shell("set", "fox", "permission-mode=acceptEdits")
    grants = shell.home / ".config" / "agentsdir" / "grants.json"
    assert done.code == 0
    assert "fox edits files in its folder without asking" in done.err
    assert f"only you have allowed that, and only to this agent: it stands in {grants}" in done.err
    assert shell.log(agent) == before
    assert shell.ok("set", "fox").json["permissionMode"] == "acceptEdits"
    assert shell.ok("inspect", "fox").json["permissionMode"] == "acceptEdits"
    assert json.loads(grants.read_bytes())["modes"][0]["mode"] == "acceptEdits"

    # Neither a fork nor an import of it has the mode.
    fork = shell.ok("fork", "fox").out.strip()
    assert shell.ok("set", fork).json["permissionMode"] is None
    shell.ok("export", "--bundle", agent, "b.tar")
    shell.ok("rm", "--yes", agent)
    assert shell("import", "b.tar").out.strip() == agent
    assert shell.ok("set", agent).json["permissionMode"] is None

    shell("set", agent, "permission-mode=bypassPermissions")
    assert shell.ok("set", agent).json["permissionMode"] == "bypassPermissions"
    shell.ok("set", agent, "permission-mode=plan")
    assert shell.ok("set", agent).json["permissionMode"] == "plan"
    shell("set", agent, "permission-mode=acceptEdits")
    shell.ok("set", agent, "permission-mode=")
    assert shell.ok("set", agent).json["permissionMode"] is None
    # What is left is of the agent that was removed, and holds for no other.
    left = [one["mode"] for one in json.loads(grants.read_bytes())["modes"]]
    assert left == ["acceptEdits"]


def test_a_mode_that_a_log_grants_itself_runs_nothing(shell: Any) -> None:
    """The refusal names the command with which the user can grant it."""
    agent = shell.new("--provider", "claude")
    folder = shell.root / "agents" / agent
    with write_agent(AgentPaths(folder, agent)) as writer:
        values = {"permission_mode": "bypassPermissions"}
        writer.append("agent.set", {"values": values}, "2026-01-02T03:04:05.000000Z")
    done = shell("send", agent, "hi", "--json")
    assert (done.code, done.error["kind"]) == (14, "permission-mode")
    assert f"`agentsdir set {agent} permission-mode=MODE`" in done.error["hint"]
    shell.ok("set", agent, "permission-mode=")
    assert shell("send", agent, "hi", "--json").error["kind"] == "no-client"


def test_a_spent_budget_is_exit_13_and_shown(shell: Any) -> None:
    """Its message has what is spent and of what, the hint what changes it."""
    agent = shell.new("--name", "fox")
    shell.ok("set", "fox", "budget=turns:1,tokens:1k")
    shell.ok("send", "fox", "hi there")
    done = shell("send", "fox", "more", "--json")
    assert (done.code, done.error["kind"]) == (13, "budget")
    assert done.error["message"] == f"agent {agent} has spent its budget: 1 of 1 turns"
    shown = shell.ok("set", "fox", tty=True).out
    assert "budget           tokens:1000,turns:1\n" in shown
    assert "spent            4 tokens, 1 turns\n" in shown
    assert "spent      4 tokens, 1 turns" in shell.ok("inspect", "fox", tty=True).out
    shell.ok("queue", "fox", "later")
    assert shell("send", "fox", "--no-message").code == 13
    shell.ok("set", "fox", "budget=")
    assert shell.ok("send", "fox", "--no-message").out == "later\n"


def test_the_day_of_a_budget_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its midnights are those of the local time zone, also where the clock changes."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        begins, ends = local_day(datetime(2026, 3, 28, 23, 30, tzinfo=UTC))
        assert begins.isoformat() == "2026-03-29T00:00:00+01:00"
        assert ends.isoformat() == "2026-03-30T00:00:00+02:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_set_is_refused_in_a_turn_and_for_a_closed_agent(shell: Any) -> None:
    """Exit 13: a tool call chooses no folder."""
    agent = shell.new()
    shell.variables |= {
        "AGENTSDIR_ROOT": str(shell.root), "AGENTSDIR_AGENT": agent, "AGENTSDIR_TURN": "t" * 24
    }  # fmt: skip
    done = shell("set", agent, "cwd=.", "--json")
    assert (done.code, done.error["kind"]) == (13, "in-turn")
    del shell.variables["AGENTSDIR_TURN"]
    shell.ok("close", agent)
    done = shell("set", agent, "cwd=.", "--json")
    assert (done.code, done.error["kind"]) == (13, "closed")


def test_an_imported_agent_works_where_the_import_ran(shell: Any) -> None:
    """Not where the bundle says; the command that gives it another folder is named at once."""
    (shell.cwd / "old").mkdir()
    agent = shell.ok("new", "--cwd", "old").out.strip()
    shell.ok("export", "--bundle", agent, "b.tar")
    shell.ok("rm", "--yes", agent)
    (shell.cwd / "old").rmdir()

    done = shell("import", "b.tar")

    assert done.code == 0
    assert f"`agentsdir set {agent} cwd=DIR`" in done.err
    assert shell.ok("inspect", agent).json["cwd"] == str(shell.cwd)


@pytest.mark.parametrize("clash", [False, True])
def test_a_setting_that_came_with_a_bundle_chooses_no_folder(shell: Any, clash: bool) -> None:
    """Nor does a file that it names for a script, for the agent or for its fork."""
    secret = shell.home / "secret.jsonl"
    secret.write_text('{"type": "block_complete"}\n')
    (shell.cwd / "old").mkdir()
    option = f"file={secret}"
    agent = shell.ok("new", "--provider", "script", "--option", option).out.strip()
    shell.ok("set", agent, "cwd=old")
    shell.ok("export", "--bundle", agent, "b.tar")
    if not clash:
        shell.ok("rm", "--yes", agent)

    made = shell("import", "b.tar").out.strip()

    assert (made == agent) is not clash
    assert shell.ok("inspect", made).json["cwd"] == str(shell.cwd)
    for words in (["send", made, "hi"], ["fork", made]):
        done = shell(*words, "--json")
        assert (done.code, done.error["kind"]) == (14, "bad-options")


@pytest.fixture
def clone(shell: Any) -> Any:
    """Return a command line in a clone that brings an agent whose folder is the user's home."""
    shell.variables["AGENTSDIR_ROOT"] = ""
    shell.root = shell.cwd / ".agentsdir"
    maker = shell.cwd / "maker"
    maker.mkdir()
    (maker / "planted").write_text("#!/bin/sh\n")
    root = ("--root", str(shell.root))
    agent = shell.ok(*root, "new", "--name", "evil", "--cwd", str(maker)).out.strip()
    shell.ok(*root, "send", "evil", "hi")
    shell.ok(*root, "suspend", "--capture", "evil")
    shutil.rmtree(maker)
    (shell.home / "private").write_text("secret")
    shutil.rmtree(shell.home / ".config", ignore_errors=True)
    shell.agent = agent
    return shell


def test_files_of_an_untrusted_root_are_not_put_back(clone: Any) -> None:
    """Trust is asked before a byte is written, also into the folder that is named."""
    for words in (["resume", "--workspace"], ["resume", "--workspace", "--into", "."]):
        done = clone(*words, "evil", "--json")
        assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert not (clone.cwd / "planted").exists()
    assert not (clone.cwd / "maker").exists()


@pytest.mark.parametrize("verb", [["suspend", "--capture"], ["export", "--workspace"]])
def test_an_untrusted_root_reads_no_folder(clone: Any, verb: list[str]) -> None:
    """What is captured would stand in the clone."""
    (clone.cwd / "maker").mkdir()
    (clone.cwd / "maker" / "private").write_text("secret")
    clone("resume", "evil")
    tail = ["x.tar"] if verb[0] == "export" else []
    done = clone(*verb, "evil", *tail, "--json")
    assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert b"secret" not in b"".join(
        path.read_bytes() for path in clone.root.rglob("*") if path.is_file()
    )


def test_files_are_put_back_where_the_command_runs_or_says(clone: Any) -> None:
    """A trusted root's agent of another folder is refused, with what to do."""
    clone.ok("trust")
    done = clone("resume", "--workspace", "evil", "--json")
    assert (done.code, done.error["kind"]) == (2, "another-folder")
    (clone.cwd / "into").mkdir()
    done = clone("resume", "--workspace", "--into", "into", "evil")
    assert (done.code, done.err) == (0, f"agentsdir: written: {clone.cwd / 'into' / 'planted'}\n")


@pytest.mark.parametrize("where", [".ssh", ".config/agentsdir/hooks", ".claude/x", "xdg", "root"])
def test_nothing_is_put_back_where_settings_are_kept(clone: Any, where: str) -> None:
    """However it is named."""
    clone.ok("trust")
    folder = clone.root if where == "root" else clone.home / where
    if where == "xdg":
        clone.variables["XDG_CONFIG_HOME"] = str(clone.home / "xdg")
        clone.ok("trust")
    folder.mkdir(parents=True, exist_ok=True)
    link = clone.cwd / "innocent"
    link.symlink_to(folder)

    done = clone("resume", "--workspace", "--into", "innocent", "evil", "--json")

    assert (done.code, done.error["kind"]) == (12, "private-folder")
    assert not (folder / "planted").exists()


def test_a_bundle_puts_nothing_into_a_home_or_a_repository(shell: Any) -> None:
    """Its manifest says `.ssh` or `.git`: the first is refused whole, the second is left out."""
    (shell.cwd / "w").mkdir()
    (shell.cwd / "w" / "zssh").mkdir()
    (shell.cwd / "w" / "zssh" / "key").write_text("k")
    agent = shell.ok("new", "--cwd", "w").out.strip()
    shell.ok("export", "--workspace", agent, "b.tar")
    shell.ok("rm", "--yes", agent)
    for name, code in ((".ssh", 12), (".git", 0)):
        changed = io.BytesIO()
        with (
            tarfile.open(shell.cwd / "b.tar") as old,
            tarfile.open(shell.cwd / f"{name}.tar", "w") as new,
        ):
            for member in old:
                stream = old.extractfile(member)
                data = stream.read() if stream else b""
                if member.name.endswith("workspace/manifest.json"):
                    data = data.replace(b"zssh", name.encode())
                    member.size = len(data)
                changed = io.BytesIO(data)
                new.addfile(member, changed if member.isfile() else None)
        done = shell("import", f"{name}.tar", "--workspace", str(shell.home), "--json")
        assert done.code == code
        assert not (shell.home / name).exists()
    assert "not written: .git/key" in done.err


def test_a_script_in_the_folder_of_an_imported_agent_is_played(shell: Any) -> None:
    """The option is relative, and stays inside."""
    (shell.cwd / "talk.jsonl").write_text('{"type": "turn"}\n')
    agent = shell.ok("new", "--provider", "script", "--option", "file=talk.jsonl").out.strip()
    shell.ok("export", "--bundle", agent, "b.tar")
    shell.ok("rm", "--yes", agent)
    assert shell.ok("import", "b.tar").out.strip() == agent
    assert shell("send", agent, "hi").code == 0
    assert Path(shell.ok("inspect", agent).json["cwd"]) == shell.cwd


@pytest.mark.parametrize("grown", [False, True])
def test_a_bundle_goes_on_with_a_session_here_only_if_it_has_all_of_it(
    shell: Any, grown: bool
) -> None:
    """What came back is the same agent; one that names a session of the user's is another."""
    fixture = Path(__file__).parents[2] / "fixtures" / "claude" / "hello-2.1.98.jsonl"
    native = "00000001-0000-4000-8000-000000000001"
    store = shell.home / ".claude" / "projects" / "-w" / f"{native}.jsonl"
    store.parent.mkdir(parents=True)
    shutil.copy(fixture, store)
    agent = shell.ok("new", "--from", native, "--cwd", ".").out.strip()
    shell.ok("export", "--bundle", agent, "b.tar")
    shell.ok("rm", "--yes", agent)
    if grown:
        with store.open("ab") as stream:
            stream.write(b'{"type": "user", "message": {"role": "user", "content": "secret"}}\n')

    made = shell("import", "b.tar", "--cwd", ".").out.strip()

    assert (made == agent) is not grown
    assert (shell.ok("inspect", made).json["native"]["id"] == native) is not grown
    assert "secret" not in shell("parse", made).out
