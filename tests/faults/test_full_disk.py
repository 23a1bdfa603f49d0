"""A disk that is full, a file that may not grow, an output that no process can take."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from console import Console, tree
from machine import lacking, need
from mounted import tmpfs, unused

from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout

PAGE = 4096


def fill(path: Path, leave: int) -> None:
    """Write zeros to `path` until the disk below it, which is a small one, has `leave` bytes."""
    size = unused(path.parent) - leave
    assert 0 <= size <= 1024 * 1024
    path.write_bytes(bytes(size))
    assert unused(path.parent) == leave


@pytest.mark.parametrize("words", [1, 150, 700], ids="{} words a prompt".format)
def test_a_send_on_a_full_disk_is_refused_and_takes_nothing_with_it(
    tmp_path: Path, words: int
) -> None:
    """Exit 0 means that all is there, 15 that the log is as before, or has a beginning of it.

    With every number of free pages, so that each of a turn's writes is the first that is refused.
    """
    need("root", "tmpfs")
    refused_at = set()
    # Short prompts take many turns to fill what is free, and meet each write anyway.
    for pages in range(0, 20, 2 if words == 1 else 1):
        with tmpfs(tmp_path / "disk", 256 * 1024) as disk:
            console = Console(disk / "root", tmp_path)
            agent = console.new()
            console.ok("send", agent, "hello")
            fill(disk / "ballast", pages * PAGE)
            said = ["hello"]
            for number in range(12):
                prompt = f"{number} " + "word " * words
                before = console.log(agent).read_bytes()
                done = console("send", agent, prompt)
                if done.code:
                    break
                said.append(prompt)
            if done.code == 0:
                assert pages > 5  # the turns before were small, and there was room
                continue
            refused_at.add(_after(console, agent, before))
            assert (done.code, done.quiet) == (15, True), done
            assert [t for text in said for t in (text, text)] == console.replayed(agent)[
                : 2 * len(said)
            ]
            (disk / "ballast").unlink()
            console.ok("send", agent, prompt)
            assert console.replayed(agent)[-1] == prompt
            assert console.ok("restore")
            assert console.problems() == []
            assert [t for text in said for t in (text, text)] == console.replayed(agent)[
                : 2 * len(said)
            ]
    assert len(refused_at) > 2, "the disk was always full at the same place"


def _after(console: Console, agent: str, before: bytes) -> int:
    """Check what a refused turn left of the log; return how many records it has got in."""
    log = console.log(agent).read_bytes()
    assert log.startswith(before)
    new = log[len(before) :]
    assert new == b"" or new.endswith(b"\n")
    reading = read_agent(Layout(console.root).agent(agent), whole=True)
    assert reading.findings == ()
    if new:
        # Not acknowledged, and said to be there: a message that waits, or a turn without an end.
        assert reading.state.pending or reading.state.open_turn
    return new.count(b"\n")


def test_new_on_a_full_disk_makes_a_whole_agent_or_nothing(tmp_path: Path) -> None:
    """With every number of free pages; afterwards it works."""
    need("root", "tmpfs")
    codes = []
    for pages in range(12):
        with tmpfs(tmp_path / "disk", 96 * 1024) as disk:
            console = Console(disk / "root", tmp_path)
            fill(disk / "ballast", pages * PAGE)
            done = console("new")
            codes.append(done.code)
            agents = disk / "root" / "agents"
            there = [path.name for path in agents.iterdir()] if agents.exists() else []
            assert there == ([] if done.code else [done.out.strip()])
            assert done.quiet
            (disk / "ballast").unlink()
            agent = console.new()
            console.ok("send", agent, "hello")
            assert console.problems() == []
    assert codes == [15] * codes.index(0) + [0] * (12 - codes.index(0))
    assert codes[0] == 15


def limited(size: int) -> object:
    """Return what a process must do first so that no file of its own may grow beyond `size`."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_limit_on_the_size_of_files_refuses_a_turn_and_leaves_the_log_whole(
    tmp_path: Path,
) -> None:
    """A write that is cut short by the limit is undone; without the limit the turn runs."""
    need("linux")
    console = Console(tmp_path / "root", tmp_path)
    agent = console.new()
    console.ok("send", agent, "hello")
    prompt = "word " * 100
    for more in (0, 20, 700, 1500, 2400, 3000):
        before = console.log(agent).read_bytes()
        done = console.process("send", agent, prompt, preexec_fn=limited(len(before) + more))
        assert (done.code, done.quiet) == (15, True), (more, done)
        _after(console, agent, before)
    console.ok("send", agent, prompt)
    console.ok("restore")
    assert console.problems() == []


# Every verb, with arguments that make it say something.
VERBS = {
    "help": ["--help"],
    "version": ["--version"],
    "new": ["new"],
    "send": ["send", "AGENT", "again"],
    "send --events": ["send", "AGENT", "again", "--events"],
    "send --json": ["send", "AGENT", "again", "--json"],
    "suspend": ["suspend", "AGENT", "--json"],
    "resume": ["resume", "AGENT", "--json"],
    "restore": ["restore"],
    "archive": ["archive", "AGENT", "--json"],
    "rm": ["rm", "--yes", "AGENT", "--json"],
    "replay": ["replay", "AGENT"],
    "replay --events": ["replay", "AGENT", "--events"],
    "replay --check": ["replay", "AGENT", "--check"],
    "parse": ["parse", "TRANSCRIPT"],
    "inspect": ["inspect", "AGENT"],
    "inspect --saved": ["inspect", "AGENT", "--saved"],
    "inspect --runtime": ["inspect", "AGENT", "--runtime"],
    "list": ["list"],
    "validate": ["validate", "--json", "DAMAGED"],
    "schema": ["schema", "event"],
    "adapters": ["adapters"],
}
SENDING = {"send", "send --events", "send --json"}
WRITING = {"new", "suspend", "resume", "restore", "archive", "rm", *SENDING}


def staged(console: Console, arguments: list[str]) -> list[str]:
    """Return arguments that name an agent, its transcript, and a file that is damaged."""
    agent = console.new()
    console.ok("send", agent, "hello")
    if "resume" in arguments:
        console.ok("suspend", agent)
    (stored,) = (console.folder(agent) / "transcripts").glob("*.jsonl")
    damaged = console.cwd / "damaged.jsonl"
    damaged.write_bytes(console.log(agent).read_bytes()[:-9])
    names = {"AGENT": agent, "TRANSCRIPT": str(stored), "DAMAGED": str(damaged)}
    return [names.get(argument, argument) for argument in arguments]


def unharmed(console: Console, name: str, before: object) -> None:
    """Check that reading changed nothing, and that writing was done as if its output was read."""
    if name not in WRITING:
        assert tree(console.root) == before
    assert console.problems() == []
    for path in (console.root / "agents").iterdir():
        state = read_agent(Layout(console.root).agent(path.name), whole=True).state
        assert (state.open_turn, state.pending) == (None, [])
        assert state.counters["failedTurns"] == 0
        assert state.counters["turns"] == (
            2 if name.startswith("send") else state.counters["turns"]
        )


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_whose_output_cannot_be_stored_does_not_exit_0(tmp_path: Path, name: str) -> None:
    """`> /dev/full`: one line on stderr, what was to be done is done, nothing is damaged."""
    if not Path("/dev/full").exists():
        lacking("a device /dev/full")
    console = Console(tmp_path / "root", tmp_path)
    arguments = staged(console, VERBS[name])
    before = tree(console.root)
    with Path("/dev/full").open("wb") as full:
        done = console.process(*arguments, stdout=full)
    assert done.code not in (0, 3), done
    assert done.quiet, done
    assert "No space left" in done.err or name == "version", done
    unharmed(console, name, before)


TALKING = ["help", "new", "send", "send --json", "suspend", "restore", "replay", "parse", "list"]


@pytest.mark.parametrize("name", [*TALKING, "inspect", "validate"])
def test_a_verb_whose_output_no_process_reads_ends_quietly(tmp_path: Path, name: str) -> None:
    """A pipe that is closed from the start: exit 141 and not a word; the work is done."""
    console = Console(tmp_path / "root", tmp_path)
    arguments = staged(console, VERBS[name])
    before = tree(console.root)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = console.process(*arguments, stdout=writing)
    finally:
        os.close(writing)
    assert (done.code, done.err) == (141, ""), done
    unharmed(console, name, before)


LONG = ["replay AGENT", "inspect AGENT --saved", "parse TRANSCRIPT", "send AGENT LONG --events"]


@pytest.mark.parametrize("line", LONG)
def test_a_reader_that_leaves_after_one_line_ends_a_verb_quietly(tmp_path: Path, line: str) -> None:
    """`| head -1`, with more to come than a pipe can hold."""
    console = Console(tmp_path / "root", tmp_path)
    arguments = staged(console, line.split())
    agent = next(path.name for path in (console.root / "agents").iterdir())
    long = " ".join(["word"] * 20_000)
    console.ok("send", agent, "-", stdin=long)
    arguments = [long if argument == "LONG" else argument for argument in arguments]
    with console.start(*arguments, bufsize=0, text=False) as process:
        with process.stdout as output:
            assert output.read(1) != b""
        with process.stderr as complaints:
            complaint = complaints.read()
    assert (process.returncode, complaint) == (141, b"")
    assert console.problems() == []
