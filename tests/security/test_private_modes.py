"""What the program makes is its user's alone, from the call that makes it."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from arena import Arena, Mould

from agentsdir.formats.store import files

UMASKS = (0o000, 0o022, 0o077)
# What a lock or a program for people makes is not what the format keeps.
EXCEPT = {".lock", ".turn", "settings.toml"}
LIVED = ("new", "send", "suspend", "resume", "restore", "archive", "trust")


def live(arena: Arena, umask: int) -> None:
    """Let an agent go through everything that writes. A verb that is new is one line here."""
    agent = arena.ok("new", "--name", "one", umask=umask)
    verbs = (
        ["send", agent, "hello"],
        ["suspend", agent],
        ["resume", agent],
        ["send", agent, "again"],
        ["restore", agent],
        ["restore"],
        ["new", "--type", "subagent", "--name", "child", "--parent", agent],
    )
    for arguments in verbs:
        arena.ok(*arguments, umask=umask)
    for name in ("state.json", "session.json", "descriptor.json", "history.jsonl"):
        (arena.folder(agent) / name).unlink()
    (arena.folder(agent) / "transcripts" / "manifest.json").unlink()
    arena.ok("restore", agent, umask=umask)
    arena.ok("archive", "child", umask=umask)
    arena.ok("archive", agent, umask=umask)
    arena.ok("archive", "--undo", agent, umask=umask)
    arena.ok("trust", str(arena.root), umask=umask)
    arena.ok("rm", "--yes", arena.ok("new", umask=umask), umask=umask)


@pytest.mark.parametrize("umask", UMASKS, ids="{:03o}".format)
def test_folders_are_0700_and_files_0600_whatever_the_umask(arena: Arena, umask: int) -> None:
    """After every verb that writes, in a root that the program made itself."""
    live(arena, umask)
    found = [arena.root, *arena.root.rglob("*"), *arena.home.rglob("*")]
    assert len(found) > 25
    assert wide(found) == {}


def test_a_file_that_is_made_too_wide_is_found(arena: Arena) -> None:
    """The test above can fail: a program that makes files 0644 shows under an open umask."""

    def spoil() -> None:
        files.FILE_MODE = 0o644

    agent = arena.ok("new", umask=0, before=spoil)
    assert wide(arena.folder(agent).iterdir())


def wide(paths: Iterable[Path]) -> dict[str, str]:
    """Return the modes that are not what they should be."""
    modes = {
        path: f"{stat.S_IMODE(path.lstat().st_mode):04o}"
        for path in paths
        if path.name not in EXCEPT
    }
    return {
        str(path): mode
        for path, mode in modes.items()
        if mode != ("0700" if path.is_dir() else "0600")
    }


CALL = re.compile(
    r'(?P<call>open|openat|creat|mkdir|mkdirat)\((?:AT_FDCWD, |\d+, )?"(?P<path>[^"]*)"'
    r"(?P<rest>.*)\) = "
)
CHANGES = re.compile(r"\b(chmod|fchmod|fchmodat|fchmodat2)\((.*)\) = ")


@pytest.mark.parametrize("verb", LIVED)
def test_the_call_that_makes_a_file_gives_it_its_mode(
    mould: Mould, tmp_path: Path, verb: str
) -> None:
    """So no other user can open it in between: no chmod follows, temporaries included."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    arena = mould.copy(tmp_path)
    arguments = {
        "new": ["--root", str(tmp_path / "fresh"), "new"],
        "send": ["send", mould.victim, "hi"],
        "suspend": ["suspend", mould.victim],
        "resume": ["resume", mould.victim],
        "restore": ["restore"],
        "archive": ["archive", mould.victim],
        "trust": ["trust", str(tmp_path / "root")],
    }[verb]
    if verb == "resume":
        arena.ok("suspend", mould.victim)
    if verb == "restore":
        (arena.folder(mould.victim) / "state.json").unlink()
    trace = tmp_path / "trace"
    calls = "open,openat,creat,mkdir,mkdirat,chmod,fchmod,fchmodat,fchmodat2"
    done = subprocess.run(
        [
            strace, "-f", "-qq", "--seccomp-bpf", "-s", "512", "-o", str(trace), "-e",
            f"trace=?{',?'.join(calls.split(','))}",
            sys.executable, "-P", "-m", "agentsdir.cli.main", *arguments,
        ],
        env=arena.environment(),
        cwd=arena.work,
        umask=0,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = []
    for line in trace.read_text(errors="replace").splitlines():
        change = CHANGES.search(line)
        assert change is None or any(name in line for name in EXCEPT), line
        call = CALL.search(line)
        if call is None or not call["path"].startswith(str(tmp_path)):
            continue
        if Path(call["path"]).name in EXCEPT or "ENOENT" in line:
            continue
        if call["call"].startswith("mkdir"):
            # A library that makes sure of a folder which is there makes none.
            assert ", 0700)" in line or "EEXIST" in line, line
            made.append(call["path"])
        elif "O_CREAT" in call["rest"] or call["call"] == "creat":
            assert call["rest"].endswith(", 0600"), line
            made.append(call["path"])
    assert made, "the trace shows nothing that was made"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o777], ids="{:03o}".format)
def test_validate_reports_every_path_that_others_may_open(
    mould: Mould, tmp_path: Path, mode: int
) -> None:
    """Root, agents, an agent, each of its files, transcripts, locks; one `wide-mode` each."""
    arena = mould.copy(tmp_path)
    paths = [arena.root, *sorted(arena.root.rglob("*"))]
    for path in paths:
        path.chmod(mode | (0o700 if path.is_dir() else 0o600))
    ran = arena.run("validate", "--json").tidy()
    assert ran.code == 1
    found = [row["file"] for row in ran.rows if row["id"] == "wide-mode"]
    assert sorted(found) == sorted(str(path) for path in paths)
    assert {row["id"] for row in ran.rows} == {"wide-mode"}


def test_validate_says_nothing_of_narrow_modes(mould: Mould, tmp_path: Path) -> None:
    """Narrower than 0600 is no risk."""
    arena = mould.copy(tmp_path)
    for path in arena.root.rglob("*.json*"):
        path.chmod(0o400)
    assert arena.run("validate", "--json").out == ""
