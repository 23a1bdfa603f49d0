"""The power goes while a writer writes: whatever it acknowledged is there afterwards.

Every cut comes at a moment drawn from a seed, which a failure names.
"""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from console import Console, found
from fleet import Job, working
from machine import need
from mounted import Ext4

from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.events import apply, begin
from agentsdir.formats.store.layout import Layout
from agentsdir.formats.store.log import open_log, read_log

# What a cut may leave: an unfinished write, and what follows from it.
HARMLESS = {"torn-tail", "stub"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4]:
    """Return a disk whose power can be cut."""
    need("root", "ext4")
    with Ext4(tmp_path) as disk:
        yield disk


@pytest.fixture
def console(disk: Ext4, tmp_path: Path) -> Console:
    """Return a command line on an agents directory that is on that disk."""
    return Console(disk.root / "root", tmp_path)


def cut_during(disk: Ext4, job: Job, moment: random.Random) -> list[str]:
    """Cut the power while a process does its job; return what it acknowledged before.

    The cut comes some acknowledgements after the start, and a little later than the last of them.
    What was acknowledged before the cut began counts: an fsync that is under way may return without
    an error when this kind of cut comes, while after a real one no process gets it any more.
    """
    enough, pause = moment.randrange(1, 9), moment.uniform(0, 0.01)
    with working(job) as process:
        assert process.stdout is not None
        lines = process.stdout.fileno()
        seen = b""
        while seen.count(b"\n") < enough:
            more = os.read(lines, 4096)
            assert more, process.communicate()
            seen += more
        time.sleep(pause)
        if select.select([lines], [], [], 0)[0]:
            seen += os.read(lines, 1024 * 1024)
        disk.cut()
        _, complaint = process.communicate(timeout=60)
        # The disk refuses from here on, which the writer must take for what it is.
        assert (process.returncode, complaint) == (15, b"")
    disk.power_up()
    return seen.decode().split()


def hooks(console: Console, agent: str) -> list[str]:
    """Return the names in the records that `fleet_worker.appends` writes, in order."""
    with open_log(console.log(agent)) as log:
        records = [line.record for line in read_log(log, "log") if line.record is not None]
    return [record.data["hook"] for record in records if record.event == "hook.failed"]


def sound_after_restore(console: Console) -> None:
    """Restore as a boot does: that must lose nothing, and twice is as once."""
    done = console("restore", "--json")
    rows = [orjson.loads(line) for line in done.out.splitlines()]
    assert done.code == 0, done
    assert {f["id"] for row in rows for f in row["findings"]} <= HARMLESS
    assert console.problems() == []
    again = console.ok("restore", "--json")
    assert [orjson.loads(line)["actions"] for line in again.splitlines()] == [[] for _ in rows]


def test_every_acknowledged_append_survives_a_power_cut(console: Console, disk: Ext4) -> None:
    """Sixteen cuts, one after another, of one log: each record once and in order."""
    agent = console.new()
    acknowledged: list[str] = []
    for seed in range(16):
        moment = random.Random(seed)
        size = moment.choice([10, 1000, 10_000])
        job = Job("appends", str(console.root), agent, name=f"s{seed}", size=size)
        acknowledged += cut_during(disk, job, moment)
        there = hooks(console, agent)
        assert [name for name in there if name in set(acknowledged)] == acknowledged, seed
        reading = read_agent(Layout(console.root).agent(agent), whole=True)
        assert {finding.id for finding in reading.findings} <= HARMLESS, seed
    sound_after_restore(console)
    console.ok("send", agent, "and on")
    assert console.replayed(agent)[-1] == "and on"


def test_every_acknowledged_turn_survives_a_power_cut(console: Console, disk: Ext4) -> None:
    """Ten cuts: prompt and answer are in the log, the transcript is what was synced of it."""
    agent = console.new()
    acknowledged: list[str] = []
    for seed in range(100, 110):
        job = Job("sends", str(console.root), agent, name=f"s{seed}", size=500)
        acknowledged += cut_during(disk, job, random.Random(seed))
        if seed % 2:
            sound_after_restore(console)
        names = [text.split()[0] for text in console.replayed(agent)]
        assert {name: names.count(name) for name in acknowledged} == dict.fromkeys(
            acknowledged, 2
        ), seed
        state = read_agent(Layout(console.root).agent(agent), whole=True).state
        assert state.counters["turns"] - state.counters["failedTurns"] >= len(acknowledged)
        # Without `restore`, too, the next turn begins where the cut left the agent.
        console.ok("send", agent, "go on")
    sound_after_restore(console)


def test_an_agent_is_whole_or_absent_after_a_power_cut(console: Console, disk: Ext4) -> None:
    """Eight cuts while agents are made: every acknowledged one is there, and none is a part."""
    console.new()
    acknowledged: set[str] = set()
    for seed in range(200, 208):
        job = Job("creations", str(console.root))
        acknowledged |= set(cut_during(disk, job, random.Random(seed)))
        rows = [orjson.loads(line) for line in console.ok("list").splitlines()]
        assert acknowledged <= {row["agentId"] for row in rows}, seed
        assert console.problems() == [], seed
    sound_after_restore(console)


def test_every_acknowledged_name_is_found_after_a_power_cut(console: Console, disk: Ext4) -> None:
    """Eight cuts while agents are made and renamed: with the index that is left, and without."""
    console.new()
    acknowledged: list[str] = []
    for seed in range(250, 258):
        job = Job("names", str(console.root), name=f"s{seed}")
        acknowledged += cut_during(disk, job, random.Random(seed))
        names = [*acknowledged, *(f"first-{name}" for name in acknowledged)]
        by_index = found(console.root, names)
        assert by_index == found(console.root, names, with_index=False), seed
        assert [by_index[name] for name in acknowledged] == [
            agent_id for agent_id in by_index.values() if len(agent_id) == 24
        ], seed
        assert console.problems() == [], seed


def sessions(console: Console, agent: str) -> dict[int, dict[str, Any]]:
    """Return what session.json must be after each record of the log."""
    found, state = {}, None
    with open_log(console.log(agent)) as log:
        for line in read_log(log, "log"):
            if line.record is not None:
                state = begin(line.record) if state is None else state
                apply(state, line.record, line.offset)
                found[line.record.seq] = state.session.to_json()
    return found


def test_session_json_is_as_new_as_the_last_acknowledged_transition(
    console: Console, disk: Ext4
) -> None:
    """Eight cuts between suspensions: the whole document, never one of before the answer."""
    agent = console.new()
    console.ok("send", agent, "hello")
    for seed in range(300, 308):
        if orjson.loads((console.folder(agent) / "session.json").read_bytes())["suspended_at"]:
            console.ok("resume", agent)
        job = Job("suspensions", str(console.root), agent)
        last = int(cut_during(disk, job, random.Random(seed))[-1])
        document = orjson.loads((console.folder(agent) / "session.json").read_bytes())
        legal = [was for seq, was in sessions(console, agent).items() if seq >= last]
        assert document in legal, seed
        sound_after_restore(console)


@pytest.mark.parametrize("work", ["appends", "sends", "creations"])
def test_a_writer_without_fsync_loses_what_it_acknowledged(
    console: Console, disk: Ext4, work: str
) -> None:
    """So a cut is a cut, and the tests above can fail."""
    agent = console.new()
    console.ok("send", agent, "hello")
    os.sync()
    job = Job(work, str(console.root), agent, sabotage=("fsync",))
    acknowledged = cut_during(disk, job, random.Random(400))
    kept = {*hooks(console, agent), *(path.name for path in (console.root / "agents").iterdir())}
    kept |= {text.split()[0] for text in console.replayed(agent)}
    assert set(acknowledged) - kept


def test_a_session_json_without_fsync_is_the_old_one(console: Console, disk: Ext4) -> None:
    """The log too has lost the suspension that was acknowledged."""
    agent = console.new()
    console.ok("send", agent, "hello")
    os.sync()
    job = Job("suspensions", str(console.root), agent, sabotage=("fsync",))
    last = int(cut_during(disk, job, random.Random(500))[-1])
    assert max(sessions(console, agent)) < last
    document = orjson.loads((console.folder(agent) / "session.json").read_bytes())
    assert document["state"] == "active"


def allocate(path: Path, data: bytes, room: int) -> None:
    """Write `data` at the end of a file where room was allocated, which alone was synced."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        size = os.fstat(descriptor).st_size
        os.posix_fallocate(descriptor, size, room)
        os.fsync(descriptor)
        assert os.pwrite(descriptor, data, size) == len(data)
    finally:
        os.close(descriptor)


def test_a_log_that_ends_in_nul_bytes_after_a_cut_is_read_and_written_on(
    console: Console, disk: Ext4
) -> None:
    """Room without data is an unfinished write: named, isolated, and nothing else is lost."""
    agent = console.new()
    console.ok("send", agent, "hello")
    before = console.log(agent).read_bytes()
    allocate(console.log(agent), b'{"seq":', 4096)
    disk.cut()
    disk.power_up()
    log = console.log(agent).read_bytes()
    assert log == before + bytes(4096)
    assert console.replayed(agent) == ["hello", "hello"]
    done = console("inspect", agent)
    assert (done.code, [f["id"] for f in orjson.loads(done.out)["findings"]]) == (3, ["torn-tail"])
    sent = console("send", agent, "go on")
    assert sent.code == 0, sent
    assert console.log(agent).read_bytes().startswith(log + b" \n")
    done = console("replay", "--events", agent)
    assert done.code == 0
    assert "stub" in done.err
    assert "NUL" in done.err
    assert console.replayed(agent) == ["hello", "hello", "go on", "go on"]


def test_a_transcript_with_nul_bytes_after_a_cut_is_reported_and_read(
    console: Console, disk: Ext4
) -> None:
    """`parse` gives every block that is there, and names the run."""
    agent = console.new()
    console.ok("send", agent, "hello")
    (stored,) = (console.folder(agent) / "transcripts").glob("*.jsonl")
    native = disk.root / "native.jsonl"
    native.write_bytes(stored.read_bytes())
    whole = console.ok("parse", str(native))
    allocate(native, b'{"type":', 4096)
    disk.cut()
    disk.power_up()
    native.write_bytes(native.read_bytes() + b"\n" + stored.read_bytes().splitlines()[-1] + b"\n")
    done = console("parse", str(native))
    assert done.code == 3
    assert "nul-run" in done.err
    assert done.out.startswith(whole)
