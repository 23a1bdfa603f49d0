"""`agentsdir set`, and which folder an agent works in: never one that a bundle or a root chose."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest


def test_set_gives_an_agent_another_folder(shell: Any) -> None:
    """As a record of its own, once; the list and the native session have it."""
    agent = shell.new()
    (shell.cwd / "moved").mkdir()

    row = shell.ok("set", agent, "cwd=moved", "--json").json
    shell.ok("set", agent, "cwd=moved")

    moved = str(shell.cwd / "moved")
    assert row["agentId"] == agent
    shown = shell.ok("inspect", agent).json
    assert (shown["cwd"], shown["native"]["cwd"]) == (moved, moved)
    assert [one["data"] for one in shell.log(agent) if one["event"] == "agent.set"] == [
        {"values": {"cwd": moved}}
    ]
    assert shell("validate").code == 0


@pytest.mark.parametrize("words", [["cwd=gone"], ["colour=red"], ["cwd"], []])
def test_set_refuses_what_is_no_setting(shell: Any, words: list[str]) -> None:
    """Exit 2, and nothing is recorded."""
    agent = shell.new()
    before = shell.log(agent)
    assert shell("set", agent, *words).code == 2
    assert shell.log(agent) == before


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

    made = shell.ok("import", "b.tar", "--cwd", ".").out.strip()

    assert (made == agent) is not grown
    assert (shell.ok("inspect", made).json["native"]["id"] == native) is not grown
    assert "secret" not in shell("parse", made).out
