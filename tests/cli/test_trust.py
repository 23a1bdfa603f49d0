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
    shell.ok("--root", ".agentsdir", "new", "--name", "demo")
    deep = shell.cwd / "src" / "deep"
    deep.mkdir(parents=True)
    shell.cwd = deep
    return shell


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
    project.ok("--root", str(other / ".agentsdir"), "new", "--name", "demo")
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
