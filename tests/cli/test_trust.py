"""`agentsdir trust`: a root that was found by search, or is another's, starts nothing unasked."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsdir.schemas import check


@pytest.fixture
def project(shell: Any) -> Any:
    """Return a command line in a project that brings agents along, below a folder of it."""
    shell.variables["AGENTSDIR_ROOT"] = ""
    shell.root = shell.cwd / ".agentsdir"
    made_by_another(shell, shell.root)
    deep = shell.cwd / "src" / "deep"
    deep.mkdir(parents=True)
    shell.cwd = deep
    return shell


def made_by_another(shell: Any, root: Path) -> None:
    """Make a root with an agent, as another user would have: it is not on this one's list."""
    shell.variables["XDG_CONFIG_HOME"] = str(shell.home / "another")
    shell.ok("--root", str(root), "new", "--name", "demo")
    del shell.variables["XDG_CONFIG_HOME"]


def trusted(shell: Any) -> Path:
    """Return where the list stands."""
    path: Path = shell.home / ".config" / "agentsdir" / "trusted.json"
    return path


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder but the locks."""
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", ".turn")
    }


@pytest.mark.parametrize("where", [".", "../.."], ids=["above", "here"])
def test_a_root_that_was_found_by_search_starts_no_provider(project: Any, where: str) -> None:
    """The message is not recorded either, and the hint is what lifts it."""
    project.cwd = (project.cwd / where).resolve()
    before = files(project.root)

    done = project("send", "--json", "demo", "hi")

    assert (done.code, done.out, done.error["kind"]) == (14, "", "untrusted-root")
    assert done.error["message"] == (
        f"{project.root} starts no provider: it was found in or above the working directory, "
        "and not named"
    )
    assert f"`agentsdir trust {project.root}`" in done.error["hint"]
    assert files(project.root) == before

    assert project.ok("trust", str(project.root)).out == f"{project.root}\n"
    assert project.ok("send", "demo", "hi").out == "hi\n"


@pytest.mark.parametrize(
    "line",
    [
        ["send", "--no-wait", "demo", "hi"],
        ["send", "--create", "other", "hi"],
        ["send", "--cron", "nightly", "hi"],
        ["spawn", "--parent", "demo", "a task"],
        ["spawn", "--detach", "--parent", "demo", "a task"],
        ["interrupt", "demo", "hi"],
        ["import", "BUNDLE", "--workspace", "INTO"],
    ],
)
def test_what_is_refused_leaves_nothing_in_the_root(project: Any, line: list[str]) -> None:
    """No message that the next trusted turn would run, no agent, and no files put back."""
    root = ("--root", str(project.root))
    project.ok(*root, "export", "--workspace", "demo", str(project.home / "b.tar"))
    into = project.home / "into"
    into.mkdir()
    words = {"BUNDLE": str(project.home / "b.tar"), "INTO": str(into)}
    before = files(project.root)

    done = project(*(words.get(word, word) for word in line), "--json")

    assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert files(project.root) == before
    assert list(into.iterdir()) == []


def test_a_suspension_in_it_asks_no_provider(project: Any) -> None:
    """Its blob is only a short cut; who is asked reads what the log names."""
    project.ok("--root", str(project.root), "send", "demo", "hi")
    project.ok("suspend", "demo")
    agent = project.ok("list").rows[0]["agentId"]
    last = (project.folder(agent) / "events.jsonl").read_bytes().splitlines()[-1]
    assert json.loads(last)["data"].get("provider_state", "") == ""


def test_a_root_that_was_found_by_search_hands_no_text_to_a_hook(project: Any) -> None:
    """It came with what it says, and the hook speaks for the user."""
    hook = project.home / ".config" / "agentsdir" / "hooks" / "outgoing"
    hook.parent.mkdir(parents=True)
    talk = ("--connector", "chat", "--user", "u", "--channel", "c")
    project.ok("--root", str(project.root), "send", *talk, "--", "hi")
    hook.write_text(f"#!/bin/sh\ntouch {project.home}/spoken\n")
    hook.chmod(0o755)

    done = project("outbox", "--deliver", "--json")

    assert (done.code, done.out, done.error["kind"]) == (14, "", "untrusted-root")
    assert not (project.home / "spoken").exists()
    project.ok("trust")
    project("outbox", "--deliver")
    assert (project.home / "spoken").exists()


def test_without_a_folder_the_root_in_force_is_trusted(project: Any) -> None:
    """The one that a command here would use, from anywhere in the project."""
    assert project.ok("trust").out == f"{project.root}\n"
    project.cwd = project.root.parent
    project.ok("send", "demo", "hi")


@pytest.mark.parametrize("name", ["option", "variable", "home", "home by search"])
def test_a_root_of_ours_that_was_named_needs_no_trust(project: Any, name: str) -> None:
    """`--root`, `$AGENTSDIR_ROOT` and the one at home are meant; the list is not even read."""
    trusted(project).parent.mkdir(parents=True)
    trusted(project).write_text("damaged")
    options: list[str] = []
    if name == "option":
        options = ["--root", "../../.agentsdir"]
    elif name == "variable":
        project.variables["AGENTSDIR_ROOT"] = str(project.root)
    else:
        project.root.rename(project.home / ".agentsdir")
        project.cwd = project.home / "src" if name == "home by search" else project.cwd
        project.cwd.mkdir(exist_ok=True)

    assert project.ok(*options, "send", "demo", "hi").out == "hi\n"


@pytest.mark.parametrize("named", [True, False])
def test_a_root_of_another_user_starts_no_provider(project: Any, named: bool) -> None:
    """However it was found, until it is listed."""
    project.uid = os.geteuid() + 1
    options = ["--root", str(project.root)] if named else []

    done = project(*options, "send", "--json", "demo", "hi")

    assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert "belongs to another user" in done.error["message"]
    project.ok("trust", str(project.root))
    assert project.ok(*options, "send", "demo", "hi").out == "hi\n"


def test_nothing_but_send_needs_trust(project: Any) -> None:
    """Agents are read, suspended, resumed, archived and removed without starting anything."""
    project.ok("--root", str(project.root), "send", "demo", "hi")
    for line in (
        ["list"],
        ["inspect", "demo"],
        ["inspect", "demo", "--runtime"],
        ["replay", "demo"],
        ["snapshot", "demo"],
        ["log", "demo"],
        ["last", "demo"],
        ["suspend", "demo"],
        ["resume", "demo"],
        ["restore"],
        ["archive", "demo"],
    ):
        project.ok(*line)
    assert project("validate").code == 0
    agent = project.ok("archive", "--list").rows[0]["agentId"]
    project.ok("archive", "--undo", "demo")
    session = json.loads((project.folder(agent) / "session.json").read_bytes())
    assert (session["state"], session["provider_state"]) == ("suspended", "")
    project.ok("rm", "--yes", "demo")


def test_a_root_is_trusted_under_its_real_path(project: Any) -> None:
    """A link to it is the same root; another root in its place by a link is not."""
    link = project.home / "link"
    link.symlink_to(project.root.parent)
    assert project.ok("trust", "../../../home/link/.agentsdir").out == f"{project.root}\n"
    project.cwd = link
    project.ok("send", "demo", "hi")

    other = project.home / "other"
    other.mkdir()
    made_by_another(project, other / ".agentsdir")
    link.unlink()
    link.symlink_to(other)
    assert project("send", "demo", "hi").code == 14


def test_the_list_is_the_users_own_and_private(project: Any) -> None:
    """Below $XDG_CONFIG_HOME, in no root, 0600 in a folder of 0700, each root once."""
    old = os.umask(0)
    try:
        project.variables["XDG_CONFIG_HOME"] = str(project.home / "cfg")
        project.ok("trust")
        project.ok("trust")
    finally:
        os.umask(old)
    path = project.home / "cfg" / "agentsdir" / "trusted.json"
    assert json.loads(path.read_text()) == {"roots": [str(project.root)]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    project.variables["XDG_CONFIG_HOME"] = "relative"
    assert project("send", "demo", "hi").code == 14
    project.ok("trust")
    assert trusted(project).exists()
    assert not (project.cwd / "relative").exists()


def test_the_list_is_printed_and_shortened(project: Any) -> None:
    """As paths on a terminal, as JSON in a pipe; what is not on it is not taken off."""
    assert project.ok("trust", "--list").out == ""
    (row,) = project.ok("trust", "--json").rows
    assert row == {"type": "trusted", "root": str(project.root)}
    assert project.ok("trust", "--list").rows == [row]
    assert project.ok("trust", "--list", tty=True).out == f"{project.root}\n"

    (gone,) = project.ok("trust", "--remove", "--json").rows
    assert gone == {"type": "untrusted", "root": str(project.root)}
    assert check("trusted", row) == check("trusted", gone) == []
    assert project("send", "demo", "hi").code == 14
    done = project("trust", "--remove", "--json")
    assert (done.code, done.error["kind"]) == (1, "not-trusted")


def test_a_root_that_is_gone_can_be_taken_off_the_list(project: Any) -> None:
    """By its path."""
    project.ok("trust")
    project.root.rename(project.home / "away")

    project.ok("trust", "--remove", str(project.root))

    assert json.loads(trusted(project).read_text()) == {"roots": []}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"roots": "/"}', '{"roots": [1]}', '{"roots": ["a"]}', "\0"]
)
def test_a_damaged_list_trusts_nothing_and_is_left_as_it_is(project: Any, text: str) -> None:
    """It says so, wherever it is read."""
    project.ok("trust")
    trusted(project).write_text(text)

    done = project("send", "--json", "demo", "hi")
    assert (done.code, done.error["kind"]) == (14, "untrusted-root")
    assert str(trusted(project)) in done.error["message"]
    for options in ([], ["--remove"], ["--list"]):
        assert project("trust", *options).code == 12
    assert trusted(project).read_text() == text


def test_a_link_in_place_of_the_list_is_not_followed(project: Any) -> None:
    """It trusts nothing."""
    elsewhere = project.home / "list.json"
    elsewhere.write_text(json.dumps({"roots": [str(project.root)]}))
    trusted(project).parent.mkdir(parents=True)
    trusted(project).symlink_to(elsewhere)

    assert project("send", "demo", "hi").code == 14


def test_what_a_newer_program_put_into_the_list_stands(project: Any) -> None:
    """Fields that this program does not know are kept."""
    trusted(project).parent.mkdir(parents=True)
    trusted(project).write_text('{"roots": ["/other"], "colour": "blue"}')

    project.ok("trust")

    wanted = {"roots": ["/other", str(project.root)], "colour": "blue"}
    assert json.loads(trusted(project).read_text()) == wanted


@pytest.mark.parametrize(
    "arguments", [["--list", "x"], ["--list", "--remove"], ["nowhere"], ["a\0b"], ["."]]
)
def test_what_is_no_agents_directory_is_not_trusted(project: Any, arguments: list[str]) -> None:
    """Nor are options that do not go together: exit 2, and no list is made."""
    assert project("trust", *arguments).code == 2
    assert not trusted(project).exists()


def test_a_folder_that_holds_a_root_is_answered_with_what_was_meant(project: Any) -> None:
    """The project's folder is not its agents directory."""
    done = project("trust", str(project.root.parent))
    assert (done.code, f"did you mean {project.root}?" in done.err) == (2, True)


def test_roots_trusted_at_the_same_time_are_all_on_the_list(project: Any) -> None:
    """None of several processes overwrites what another one listed."""
    roots = [project.home / f"r{number}" for number in range(4)]
    for root in roots:
        project.ok("--root", str(root), "new")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", "trust", str(root)],
            env={**project.environment(), "XDG_CONFIG_HOME": ""},
            stdout=subprocess.DEVNULL,
        )
        for root in roots
    ]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert set(json.loads(trusted(project).read_text())["roots"]) == {str(r) for r in roots}


def test_who_makes_a_root_may_run_agents_in_it(shell: Any) -> None:
    """It is found by search afterwards, and is on the list without a question."""
    shell.variables["AGENTSDIR_ROOT"] = ""
    shell.ok("--root", ".agentsdir", "new", "--name", "demo")
    assert json.loads(trusted(shell).read_text()) == {"roots": [str(shell.cwd / ".agentsdir")]}

    assert shell.ok("send", "demo", "hi").out == "hi\n"


@pytest.mark.parametrize("left", ["settings.toml", "agents/x", "profiles/p/prompt.md"])
def test_a_root_that_is_made_of_what_another_left_there_is_not_trusted(
    shell: Any, left: str
) -> None:
    """A clone can hold all of a root but agentsdir.json, which the first command would add."""
    shell.variables["AGENTSDIR_ROOT"] = ""
    planted = shell.cwd / ".agentsdir" / left
    planted.parent.mkdir(parents=True)
    planted.touch()
    shell.ok("--root", ".agentsdir", "new", "--name", "demo")

    assert not trusted(shell).exists()
    assert shell("send", "demo", "hi").code == 14


@pytest.mark.parametrize("root", ["agents", "../home/.agentsdir"], ids=["another name", "home"])
def test_a_root_that_needs_no_trust_is_not_listed(shell: Any, root: str) -> None:
    """Only what is found by search has to be on the list."""
    shell.home.mkdir(exist_ok=True)
    shell.ok("--root", os.path.relpath(shell.cwd / root, shell.cwd), "new")
    assert not trusted(shell).exists()


def test_a_root_is_made_where_the_list_cannot_be_written(shell: Any) -> None:
    """A note says so."""
    trusted(shell).parent.mkdir(parents=True)
    trusted(shell).write_text("damaged")
    done = shell("--root", ".agentsdir", "new", "--name", "demo")
    assert (done.code, "is not listed as trusted" in done.err) == (0, True)
    assert trusted(shell).read_text() == "damaged"


def test_a_new_root_is_kept_out_of_git(shell: Any) -> None:
    """One `git add .` would push what was said to agents; `validate` knows the file."""
    subprocess.run(["git", "init", "-q"], cwd=shell.cwd, check=True)
    shell.ok("--root", ".agentsdir", "new", "--name", "demo")
    shell.ok("--root", ".agentsdir", "send", "demo", "secret")

    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.check_output(status, cwd=shell.cwd) == b""
    assert shell("--root", ".agentsdir", "validate").out == ""


def test_what_a_folder_held_is_not_kept_out_of_git(shell: Any) -> None:
    """A project's own folder can be named as the root, and an ignore file of its own stands."""
    (shell.cwd / "main.c").touch()
    shell.ok("--root", ".", "new")
    assert not (shell.cwd / ".gitignore").exists()

    own = shell.cwd / "own" / ".agentsdir"
    own.mkdir(parents=True)
    (own / ".gitignore").write_text("slots\n")
    shell.ok("--root", str(own), "new")
    assert (own / ".gitignore").read_text() == "slots\n"


WRITERS = {
    "archive": ["archive", "demo"], "clear-abort": ["clear-abort", "demo"],
    "close": ["close", "demo"], "config": ["config", "max_slots=3"], "fork": ["fork", "demo"],
    "import": ["import", "BUNDLE"], "interrupt": ["interrupt", "demo"],
    "new": ["new"], "new --get": ["new", "--get", "--name", "demo"],
    "open": ["open", "demo"],
    "outbox --deliver": ["outbox", "--deliver"], "outbox --done": ["outbox", "demo", "--done", "x"],
    "queue": ["queue", "demo", "hi"], "rename": ["rename", "demo", "other"],
    "reset": ["reset", "demo"], "restore": ["restore"], "resume": ["resume", "demo"],
    "rm": ["rm", "--yes", "demo"], "send": ["send", "demo", "hi"],
    "send a new one": ["send", "--connector", "c", "--user", "u", "--channel", "x", "--", "hi"],
    "set": ["set", "demo", "cwd=."], "spawn": ["spawn", "--parent", "demo", "hi"],
    "suspend": ["suspend", "demo"], "suspend --capture": ["suspend", "demo", "--capture"],
    "tag": ["tag", "demo", "+x"],
}  # fmt: skip
READERS = {
    "export": ["export", "--bundle", "demo", "x.tar"],
    "inspect": ["inspect", "demo"], "list": ["list"], "log": ["log", "demo"],
    "outbox": ["outbox"], "permissions": ["permissions"], "replay": ["replay", "demo"],
    "resolve": ["resolve", "most-recent-foreground"], "snapshot": ["snapshot", "demo"],
    "restore": ["restore", "--dry-run"], "validate": ["validate"], "wait": ["wait", "demo"],
}  # fmt: skip


@pytest.fixture
def anothers(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the command line of the superuser in the agents directory of another user."""
    bundle = shell.cwd / "bundle.tar"
    shell.new("--name", "demo")
    shell.ok("export", "--bundle", "demo", str(bundle))
    if os.geteuid() == 0:
        for path in (shell.root, *shell.root.rglob("*")):
            os.lchown(path, 4711, 4711)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
    shell.uid = shell.root.stat().st_uid  # so that trust is no reason
    shell.variables["BUNDLE"] = str(bundle)
    return shell


def entries(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all that stands below a folder: owner, mode, and what is in it."""
    return {
        str(path): (status.st_uid, status.st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
        for status in [path.lstat()]
    }


@pytest.mark.parametrize("line", WRITERS.values(), ids=WRITERS)
def test_the_superuser_writes_nothing_in_another_users_directory(
    anothers: Any, line: list[str]
) -> None:
    """Its owner could neither write nor remove it: exit 14, and not a lock is made."""
    before = entries(anothers.root)

    done = anothers(*[anothers.variables.get(word, word) for word in line])

    assert entries(anothers.root) == before
    assert (done.code, "run this as that user" in done.err) == (14, True), done


@pytest.mark.parametrize("line", READERS.values(), ids=READERS)
def test_the_superuser_reads_another_users_directory(anothers: Any, line: list[str]) -> None:
    """And leaves nothing there."""
    before = entries(anothers.root)

    assert anothers(*line).code == 0
    assert entries(anothers.root) == before
