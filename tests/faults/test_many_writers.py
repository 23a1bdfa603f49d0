"""Many writers on one log, and readers beside them: every record once, and no false alarm."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from console import Console, found
from fleet import Job, work_together, working

from agentsdir.cli.services import now
from agentsdir.engine.lookup import inspection
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import history_pieces, read_agent, write_agent
from agentsdir.formats.store.index import read_index
from agentsdir.formats.store.layout import AgentPaths, Layout
from agentsdir.formats.store.log import open_log, read_log


@pytest.fixture
def console(tmp_path: Path) -> Console:
    """Return a command line on an agents directory."""
    return Console(tmp_path / "root", tmp_path)


def paths_of(console: Console, agent: str) -> AgentPaths:
    """Return an agent's paths."""
    return Layout(console.root).agent(agent)


def records(paths: AgentPaths) -> list[Any]:
    """Return what can be read of a log."""
    with open_log(paths.log) as log:
        return [line.record for line in read_log(log, "log") if line.record is not None]


def written(paths: AgentPaths) -> Counter[str]:
    """Count the records of the fleet by name."""
    return Counter(r.data["hook"] for r in records(paths) if r.event == "hook.failed")


def together(console: Console, agent: str, processes: int, **job: Any) -> list[list[str]]:
    """Let several processes append to one agent at the same time."""
    return work_together(
        [
            Job("appends", str(console.root), agent, name=f"w{at}", wait=True, **job)
            for at in range(processes)
        ]
    )


def test_eight_processes_append_four_thousand_records_without_a_flaw(console: Console) -> None:
    """Each is there once, each writer's in its order, numbered without a gap, the chain whole."""
    agent = console.new()
    # No writer waits for the disk, so that they meet each other all the more.
    acknowledged = together(console, agent, 8, count=500, size=20_000, sabotage=("fsync",))
    paths = paths_of(console, agent)
    found = records(paths)
    assert [record.seq for record in found] == list(range(1, 4002))
    assert written(paths) == Counter(name for names in acknowledged for name in names)
    assert sum(map(len, acknowledged)) == 4000
    for at in range(8):
        mine = [r.data["hook"] for r in found[1:] if r.data["hook"].startswith(f"w{at}-")]
        assert mine == [f"w{at}-{number}" for number in range(500)]
    reading = read_agent(paths, whole=True)
    assert (reading.findings, reading.torn) == ((), False)
    assert paths.history.read_bytes() == b"".join(history_pieces(paths))
    assert console.problems() == []


@pytest.mark.parametrize("sabotage", [("lock",), ("lock", "pieces")], ids=" and ".join)
def test_writers_without_the_lock_are_seen_to_do_damage(
    console: Console, sabotage: tuple[str, ...]
) -> None:
    """So the test above can fail: stale positions break the chain, halves share lines."""
    agent = console.new()
    together(console, agent, 4, count=40, size=20_000, sabotage=("fsync", *sabotage))
    found = {finding.id for finding in read_agent(paths_of(console, agent), whole=True).findings}
    assert found & {"seq-gap", "chain-break"}
    if "pieces" in sabotage:
        assert found & {"splice", "bad-json", "stub"}


def test_eight_threads_append_four_hundred_records_without_a_flaw(console: Console) -> None:
    """Threads of one process keep each other out as processes do."""
    paths = paths_of(console, console.new())
    failures: list[BaseException] = []

    def work(at: int) -> None:
        try:
            for number in range(50):
                with write_agent(paths) as writer:
                    data = {"hook": f"t{at}-{number}", "message": "x"}
                    writer.append("hook.failed", data, now())
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(at,)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert written(paths) == Counter(f"t{at}-{n}" for at in range(8) for n in range(50))
    reading = read_agent(paths, whole=True)
    assert (reading.findings, reading.torn) == ((), False)
    assert not locks.is_held(paths.lock)
    assert console.problems() == []


def test_hundreds_of_looks_at_a_log_that_is_being_written_show_no_damage(console: Console) -> None:
    """Records of a mebibyte, of which a reader often sees a part; half are pages, half lists."""
    paths = paths_of(console, console.new())
    slow = {"count": 70, "size": 1024 * 1024, "sabotage": ("fsync", "slow")}
    looks = torn = 0
    with working(Job("appends", str(console.root), paths.id, **slow)) as writer:
        while looks < 400 and writer.poll() is None:
            reading = read_agent(paths)
            torn += reading.torn
            found = inspection(paths, reading)["findings"]
            # A replay reads all of the log: now and then one.
            verb = ["list"] if looks % 40 else ["replay", paths.id]
            assert (found, console(*verb).err) == ([], ""), looks
            looks += 2
    assert torn > 20, "a test that never sees half a record shows nothing"


LOOKS = {
    "inspect": (["inspect", "AGENT"], 3),
    "list": (["list"], 3),
    "replay": (["replay", "AGENT"], 3),
    "replay --events": (["replay", "AGENT", "--events"], 3),
    "validate": (["validate"], 1),
}


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize("lock", [".lock", ".turn"])
def test_half_a_record_is_damage_only_when_no_process_lives_to_finish_it(
    console: Console, name: str, lock: str
) -> None:
    """The same bytes: nothing while a lock is held, and one torn tail when it is free."""
    agent = console.new()
    console.ok("send", agent, "hello")
    log = console.log(agent)
    with log.open("ab") as stream:
        stream.write(log.read_bytes().splitlines()[-1][:-20])
    arguments, code = LOOKS[name]
    words = [agent if word == "AGENT" else word for word in arguments]
    with locks.hold(console.folder(agent) / lock):
        beside = console(*words)
    assert (beside.code, "torn" in beside.err + beside.out) == (0, False)
    alone = console(*words)
    assert alone.code == code
    lines = (alone.err + alone.out).splitlines()
    named = [line for line in lines if line.startswith(("agentsdir:", str(log))) and "torn" in line]
    assert len(named) == 1, alone


def test_processes_that_make_and_rename_agents_leave_an_index_without_a_gap(
    console: Console,
) -> None:
    """Each name is found by it, as by a look at all; and it counts when they are done."""
    jobs = [Job("names", str(console.root), name=f"w{at}", count=15, wait=True) for at in range(4)]
    acknowledged = [name for names in work_together(jobs) for name in names]
    names = [*acknowledged, *(f"first-{name}" for name in acknowledged)]
    assert len(acknowledged) == 60
    assert read_index(Layout(console.root)) is not None
    by_index = found(console.root, names)
    assert by_index == found(console.root, names, with_index=False)
    assert sorted(by_index.values()) == sorted(
        [*Layout(console.root).agent_ids(), *["no-such-agent"] * 60]
    )
