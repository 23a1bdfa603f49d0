"""What stands in a file's place and is none is refused, not followed, and spoils nothing else."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from agent_verbs import LEAN, filled
from arena import Arena, Mould, Ran, has_devices, touched

FOREIGN = b'{"foreign": "canary"}\n'

DEEP = 1200

AGENT_PLACES = (
    "", "descriptor.json", "session.json", "state.json", "history.jsonl", "events.jsonl",
    "transcripts", "transcripts/TRANSCRIPT", "transcripts/manifest.json", ".lock", ".turn",
)  # fmt: skip
# What together reads and writes every file.
VERBS = ("list", "inspect --runtime", "send", "restore", "archive")
ROOT_PLACES = ("agentsdir.json", "agents", "archive", ".lock", ".turn", "settings.toml")


def remove(path: Path) -> None:
    """Make room."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def link_to_folder(path: Path, arena: Arena) -> None:
    """Put a link to a folder outside."""
    path.symlink_to(arena.outside / "folder", target_is_directory=True)


def link_to_own_copy(path: Path, arena: Arena) -> None:
    """Put a link to what stood here, moved to the outside: all would work, were it followed."""
    path.symlink_to(arena.outside / "moved")


def dangling(path: Path, arena: Arena) -> None:
    """Put a link to a place where a file could be made."""
    path.symlink_to(arena.outside / "made-through-a-link")


def fifo(path: Path, _arena: Arena) -> None:
    """Put a FIFO that no process writes to."""
    os.mkfifo(path)


def device(path: Path, _arena: Arena) -> None:
    """Put a device that never ends."""
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))


def folder(path: Path, _arena: Arena) -> None:
    """Put a folder with something in it."""
    path.mkdir()
    (path / "inside").write_bytes(FOREIGN)


def file(path: Path, _arena: Arena) -> None:
    """Put a regular file of other content."""
    path.write_bytes(FOREIGN)


def hard_link(path: Path, arena: Arena) -> None:
    """Put another name of a file outside."""
    path.hardlink_to(arena.outside / "secret.jsonl")


def unix_socket(path: Path, arena: Arena) -> None:
    """Put a socket that no process listens at."""
    short = arena.base / "s"  # the address of a socket has 108 bytes at most
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(arena.base)
        try:
            bound.bind("s")
        finally:
            os.chdir(here)
    short.rename(path)


ODDITIES: dict[str, Callable[[Path, Arena], None]] = {
    "link to a folder": link_to_folder,
    "link to its own copy": link_to_own_copy,
    "dangling link": dangling,
    "FIFO": fifo,
    "device": device,
    "folder": folder,
    "file": file,
    "hard link": hard_link,
    "socket": unix_socket,
}


def plant(place: Path, name: str, arena: Arena) -> None:
    """Put an oddity in place of what stands there."""
    if name == "link to its own copy" and place.exists():
        place.rename(arena.outside / "moved")
    remove(place)
    ODDITIES[name](place, arena)


def can_be(place: str, name: str, base: Path) -> bool:
    """Tell whether the oddity is one in this place, and can be made here."""
    is_folder = place in ("", "transcripts", "agents", "archive")
    return (
        not (name == "folder" and is_folder)
        and not (name == "file" and not is_folder)
        and not (name == "device" and not has_devices(base))
    )


def check(arena: Arena, runs: list[Ran], before: dict[str, object], label: str) -> None:
    """Assert what holds for every oddity: no traceback, nothing outside touched or told."""
    for ran in runs:
        ran.tidy()
        # A hard link is the file that it names; only that it is written to can be refused.
        assert label in ("hard link", "file") or b"canary" not in ran.raw_out, (label, ran)
        assert list(touched(ran, arena.outside)) == [], (label, ran.arguments)
    assert arena.tree(arena.outside) == before, label
    assert not (arena.outside / "made-through-a-link").exists(), label


def copies(mould: Mould, tmp_path: Path, place: str) -> Iterator[tuple[str, Arena]]:
    """Yield each oddity that can stand at a place, with a world of its own to put it in."""
    for name in ODDITIES:
        if can_be(place, name, tmp_path):
            base = tmp_path / name.replace(" ", "-")
            base.mkdir()
            yield name, mould.copy(base)


@pytest.mark.parametrize("place", AGENT_PLACES, ids=lambda place: place or "the agent")
def test_an_oddity_in_an_agents_folder_is_refused(mould: Mould, tmp_path: Path, place: str) -> None:
    """No verb hangs or follows it, `validate` names it, and the other agent goes on."""
    for name, arena in copies(mould, tmp_path, place):
        spot = arena.folder(mould.victim) / place.replace("TRANSCRIPT", mould.transcript)
        plant(spot, name, arena)
        before = arena.tree(arena.outside)
        runs = arena.run_all(
            [
                ["validate", "--json"],
                *(filled(LEAN[verb], mould.victim) for verb in VERBS),
                ["send", mould.other, "still here?"],
            ]
        )
        check(arena, runs, before, name)
        # A folder among the transcripts may hold others; that the file is missing is said.
        missing = place.endswith("TRANSCRIPT") and name == "folder"
        if name not in ("hard link", "file") and not missing:
            odd = [row["file"] for row in runs[0].rows if row["id"] == "unsafe-path"]
            assert odd.count(str(spot)) == 1, (name, runs[0])
        assert runs[0].code == 1, (name, runs[0])
        assert runs[-1].code == 0, (name, runs[-1])


@pytest.mark.parametrize("place", ROOT_PLACES)
def test_an_oddity_in_the_root_is_refused(mould: Mould, tmp_path: Path, place: str) -> None:
    """Where the root cannot be known nothing is done; a bad lock stops only what needs it."""
    for name, arena in copies(mould, tmp_path, place):
        spot = arena.root / place
        plant(spot, name, arena)
        before = arena.tree(arena.outside)
        runs = arena.run_all(
            [
                ["validate", "--json"],
                ["new"],
                *(filled(LEAN[verb], mould.victim) for verb in VERBS),
                ["list"],
            ]
        )
        check(arena, runs, before, name)
        if place in ("agentsdir.json", "agents"):
            assert all(ran.code not in (0, 3) for ran in runs[1:]), (name, runs)
        if name not in ("hard link", "file") and place not in (".turn", "settings.toml"):
            odd = [row["file"] for row in runs[0].rows if row["id"] == "unsafe-path"]
            assert str(spot) in odd, (name, runs[0])
        if place == ".lock":
            # Nothing is ever written into a lock, so that a second name of it does no harm.
            assert runs[1].code in ((0, 12) if name == "hard link" else (12,)), (name, runs[1])
            assert runs[-1].code == 0, (name, runs[-1])


@pytest.mark.parametrize("name", ODDITIES)
def test_an_oddity_named_as_an_operand_is_no_crash(mould: Mould, tmp_path: Path, name: str) -> None:
    """`parse` and `validate` follow what a person names, but hang on nothing."""
    if not can_be("x.jsonl", name, tmp_path):
        return  # another user may make no device
    arena = mould.copy(tmp_path)
    plant(arena.work / "odd.jsonl", name, arena)
    (arena.work / "folder").mkdir()
    plant(arena.work / "folder" / "odd.jsonl", name, arena)
    before = arena.tree(arena.outside)
    lines = [["validate", "odd.jsonl"], ["validate", "folder"], ["parse", "folder"]]
    if name != "FIFO":  # `parse FIFO` waits for a writer: that is what a pipe is for
        lines.append(["parse", "odd.jsonl"])
    for ran in arena.run_all(lines):
        assert ran.tidy().code != 0, ran
    assert arena.tree(arena.outside) == before


def test_a_fifo_that_is_waited_for_would_be_noticed(arena: Arena) -> None:
    """The guard against hanging can fail a test: a writer that never comes is a timeout."""
    os.mkfifo(arena.work / "odd.jsonl")
    arena.patience = 1
    (ran,) = arena.run_all([["parse", "odd.jsonl"]])
    assert b"did not come back" in ran.raw_err


@pytest.mark.parametrize("verb", ["validate", "send", "suspend", "restore", "parse", "rm"])
def test_folders_without_end_are_no_crash(mould: Mould, tmp_path: Path, verb: str) -> None:
    """Deeper than Python calls itself, among transcripts or where `parse` looks."""
    arena = mould.copy(tmp_path)
    start = arena.folder(mould.victim) / "transcripts"
    here = os.open(start, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("d", dir_fd=here)
        there = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(here)
    operands = {
        "parse": [str(start)],
        "validate": [],
        "rm": ["--yes", mould.victim],
        "send": [mould.victim, "hi"],
    }
    arguments = operands.get(verb, [mould.victim])
    try:
        (ran,) = arena.run_all([[verb, *arguments]])
        ran.tidy()
    finally:
        # What Python 3.11 removes folders with is no match for them either.
        subprocess.run(["rm", "-rf", str(arena.root)], check=True)
