"""A disk that may only be read: reading says the same as before, and writing begins nothing."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from console import Console, Done, tree
from machine import need
from mounted import make_read_only, tmpfs

NOBODY = 65534
READING = {
    "list": ["list"],
    "list --json": ["list", "--json"],
    "inspect": ["inspect", "AGENT"],
    "inspect --saved": ["inspect", "AGENT", "--saved"],
    "inspect --runtime": ["inspect", "AGENT", "--runtime"],
    "replay": ["replay", "AGENT"],
    "replay --events": ["replay", "AGENT", "--events"],
    "replay --state": ["replay", "AGENT", "--at", "4", "--state"],
    "replay --check": ["replay", "AGENT", "--check"],
    "restore --dry-run": ["restore", "--dry-run"],
    "archive --list": ["archive", "--list"],
    "validate": ["validate"],
    "validate --json": ["validate", "--json", "--no-modes"],
    "parse a file": ["parse", "TRANSCRIPT"],
    "parse a folder": ["parse", "TRANSCRIPTS", "--report", "-"],
}
WRITING = {
    "new": ["new"],
    "new --name": ["new", "--name", "somebody"],
    "send": ["send", "AGENT", "again"],
    "send --wait 0": ["send", "AGENT", "again", "--wait", "0"],
    "suspend": ["suspend", "AGENT"],
    "resume": ["resume", "SUSPENDED"],
    "restore": ["restore"],
    "restore AGENT": ["restore", "AGENT"],
    "archive": ["archive", "AGENT"],
    "archive SUSPENDED": ["archive", "SUSPENDED"],
    "rm": ["rm", "--yes", "AGENT"],
}


class Stage:
    """An agents directory with an agent in use and one that is suspended."""

    def __init__(self, folder: Path, root: Path, *, never_locked: bool = False) -> None:
        self.console = Console(root, folder)
        agent = self.console.new()
        self.console.ok("send", agent, "hello")
        suspended = self.console.new()
        self.console.ok("send", suspended, "hello")
        self.console.ok("suspend", suspended)
        if never_locked:
            # A copy from a backup, say: there is no lock file that could be opened.
            for path in [*root.rglob(".lock"), *root.rglob(".turn")]:
                path.unlink()
        stored = self.console.folder(agent) / "transcripts"
        (transcript,) = stored.glob("*.jsonl")
        self._names = {
            "AGENT": agent,
            "SUSPENDED": suspended,
            "TRANSCRIPT": str(transcript),
            "TRANSCRIPTS": str(stored),
        }

    def named(self, arguments: list[str]) -> list[str]:
        """Return arguments with the names of what is there."""
        return [self._names.get(argument, argument) for argument in arguments]

    def read(self) -> dict[str, Done]:
        """Run every reading verb."""
        return {name: self.console(*self.named(words)) for name, words in READING.items()}


@pytest.fixture(params=["locked before", "never locked"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Return a stage on a disk of its own, which no process can write to any more."""
    need("root", "tmpfs")
    with tmpfs(tmp_path / "disk", 1024 * 1024) as disk:
        stage = Stage(tmp_path, disk / "root", never_locked=request.param == "never locked")
        stage.before = stage.read()
        make_read_only(disk)
        yield stage


def test_every_reading_verb_says_the_same_on_a_read_only_disk(stage: Stage) -> None:
    """No lock file, no cache, no time of reading is missed."""
    before = tree(stage.console.root)
    assert {name: done.code for name, done in stage.before.items()} == dict.fromkeys(READING, 0)
    assert stage.read() == stage.before
    assert tree(stage.console.root) == before


@pytest.mark.parametrize("name", WRITING)
def test_a_writing_verb_is_refused_by_a_read_only_disk(stage: Stage, name: str) -> None:
    """Exit 15 before anything else happens, and one line that says what was refused."""
    before = tree(stage.console.root)
    done = stage.console(*stage.named(WRITING[name]))
    assert done.code == 15, done
    assert done.quiet
    assert done.err != ""
    assert tree(stage.console.root) == before


def test_writing_verbs_are_refused_where_there_is_nothing_yet(tmp_path: Path) -> None:
    """An empty disk that may only be read stays empty."""
    need("root", "tmpfs")
    with tmpfs(tmp_path / "disk", 64 * 1024) as disk:
        make_read_only(disk)
        console = Console(disk / "root", tmp_path)
        assert console("new").code == 15
        assert console("list") == (0, "", "")
        assert list(disk.iterdir()) == []


def as_nobody(console: Console, arguments: list[str]) -> Done:
    """Run one command as a user for whom modes count, in a process that has imported everything.

    Where Python itself is installed, only its owner may be able to read.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            done = json.dumps(console(*arguments)).encode()
        except BaseException as error:  # noqa: BLE001, the test run must not go on in the child
            done = json.dumps([-1, "", f"Traceback: {error!r}"]).encode()
        with os.fdopen(writing, "wb") as out:
            out.write(done)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        done = Done(*json.load(answer))
    os.waitpid(child, 0)
    return done


@pytest.fixture
def public(tmp_path: Path) -> Iterator[Stage]:
    """Return a stage in a folder that every user can enter, when all commands are imported."""
    need("root")
    other = Stage(tmp_path, tmp_path / "other")
    for arguments in WRITING.values():
        other.console(*other.named(arguments))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        stage = Stage(folder, folder / "root")
        stage.read()
        yield stage


def test_a_user_who_may_only_read_reads_and_changes_nothing(public: Stage) -> None:
    """Another user says the same of a directory that was opened to all, and cannot write."""
    for path in [public.console.root, *public.console.root.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    # Their own, for a provider is not started for another user's; without the right to write.
    os.chown(public.console.root, NOBODY, NOBODY)
    sound = public.read()
    before = tree(public.console.root)
    for name, arguments in READING.items():
        assert as_nobody(public.console, public.named(arguments)) == sound[name]
    for name, arguments in WRITING.items():
        done = as_nobody(public.console, public.named(arguments))
        assert done.code == 15, (name, done)
        assert "Traceback" not in done.err
        assert "ermission denied" in done.err
    assert tree(public.console.root) == before


def test_a_user_who_may_not_read_gets_an_error_and_changes_nothing(public: Stage) -> None:
    """Private modes keep such a user out: an error, never an empty list."""
    before = tree(public.console.root)
    for arguments in [*READING.values(), *WRITING.values()]:
        done = as_nobody(public.console, public.named(arguments))
        assert done.code not in (-1, 0, 3), (arguments, done)
        assert "Traceback" not in done.err, done
        assert "ermission denied" in done.err or "there is no" in done.err, (arguments, done)
    assert tree(public.console.root) == before
