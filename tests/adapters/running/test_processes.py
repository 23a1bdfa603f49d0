"""Ending what a provider started: real processes, and all the ways in which they get away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from commands import until

from agentsdir.adapters import processes
from agentsdir.adapters.protocol import Process

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs a /proc")

SLEEPER = "echo $$ >$PIDS/sleeper; exec sleep 600"


class Nursery:
    """Starts shells that tell the pids of what they start, and leaves none of it behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pids"
        self.folder.mkdir()
        self.marks = {"AGENTSDIR_ROOT": str(folder), "AGENTSDIR_TURN": uuid4().hex}
        self.started: list[subprocess.Popen[bytes]] = []

    def shell(self, script: str, *, marked: bool = True) -> subprocess.Popen[bytes]:
        """Run a script in a process of its own; ``$PIDS`` is where it tells pids."""
        one = subprocess.Popen(
            ["bash", "-c", script],
            env={**os.environ, "PIDS": str(self.folder), **(self.marks if marked else {})},
            start_new_session=True,
        )
        self.started.append(one)
        return one

    def told(self, name: str) -> Process:
        """Return a process that told its pid under a name, once it has."""
        path = self.folder / name
        return until(lambda: _whole(path) and processes.find(int(path.read_text())), name)

    def clear(self) -> None:
        """End everything, also what the tested code left."""
        for one in self.started:
            one.kill()
            one.wait()
        for path in self.folder.iterdir():
            if _whole(path) and (left := processes.find(int(path.read_text()))):
                os.kill(left.pid, signal.SIGKILL)


def _whole(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """Return a place to start processes in."""
    made = Nursery(tmp_path)
    yield made
    made.clear()


def of(popen: subprocess.Popen[bytes]) -> Process:
    """Return a started process as the adapters know it."""
    found = processes.find(popen.pid)
    assert found is not None
    return found


def test_a_process_is_alive_until_it_is_over_even_before_it_is_waited_for(nursery: Nursery) -> None:
    """A zombie runs no more."""
    one = nursery.shell("exec sleep 600")
    process = of(one)
    assert processes.is_alive(process)
    one.kill()
    os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.is_alive(process)


def test_a_later_process_of_the_same_id_is_another_one(nursery: Nursery) -> None:
    """The start time is a part of what a process is."""
    process = of(nursery.shell("exec sleep 600"))
    assert not processes.is_alive(process._replace(started=process.started - 1))


def test_a_process_whose_name_looks_like_fields_is_read_all_the_same(
    nursery: Nursery, tmp_path: Path
) -> None:
    """`comm` may hold spaces and parentheses."""
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/sleep")
    one = subprocess.Popen([odd, "600"])
    nursery.started.append(one)
    process = of(one)
    assert process.started > 0
    assert processes.is_alive(process)


def test_an_id_that_no_process_has_finds_none() -> None:
    """Ids that are free."""
    assert processes.find(2**22 + 1) is None


def test_descendants_end_with_their_process_whatever_session_they_are_in(nursery: Nursery) -> None:
    """A tool command runs in a session of its own."""
    shell = nursery.shell(f"setsid bash -c '{SLEEPER}' & wait", marked=False)
    sleeper = nursery.told("sleeper")
    processes.end({}, [of(shell)])
    assert shell.wait() == -signal.SIGTERM
    assert not processes.is_alive(sleeper)


def test_what_carries_the_marks_ends_although_its_parent_is_unknown(nursery: Nursery) -> None:
    """Forked twice and handed on: the parents are gone."""
    nursery.shell(f"(setsid bash -c '{SLEEPER}' &) ; exit").wait()
    sleeper = nursery.told("sleeper")
    processes.end(nursery.marks)
    assert not processes.is_alive(sleeper)


def test_what_a_killed_process_left_ends_by_the_marks(nursery: Nursery) -> None:
    """Kill -9 of the client leaves its tool commands running."""
    client = nursery.shell(f"setsid bash -c '{SLEEPER}' & wait")
    sleeper = nursery.told("sleeper")
    process = of(client)
    client.kill()
    client.wait()
    assert processes.is_alive(sleeper)
    processes.end(nursery.marks, [process])
    assert not processes.is_alive(sleeper)


def test_what_will_not_end_when_asked_is_ended(nursery: Nursery) -> None:
    """SIGTERM is ignored; SIGKILL cannot be."""
    deaf = nursery.shell("trap '' TERM; echo $$ >$PIDS/deaf; while :; do sleep 0.05; done")
    nursery.told("deaf")
    processes.end(nursery.marks, grace=0.2)
    assert deaf.wait() == -signal.SIGKILL


def test_what_ends_when_asked_has_its_last_words(nursery: Nursery, tmp_path: Path) -> None:
    """SIGTERM comes first, and is waited for."""
    said = tmp_path / "said"
    polite = nursery.shell(
        f"trap 'echo bye >{said}; exit' TERM; echo $$ >$PIDS/polite; while :; do sleep 0.05; done"
    )
    nursery.told("polite")
    processes.end(nursery.marks)
    assert polite.wait() == 0
    assert said.read_text() == "bye\n"


def test_what_starts_while_the_end_comes_ends_too(nursery: Nursery) -> None:
    """A process that answers SIGTERM by starting another."""
    stubborn = nursery.shell(
        f"again() {{ setsid bash -c '{SLEEPER}' & exit; }}; trap again TERM; "
        "echo $$ >$PIDS/first; while :; do sleep 0.05; done"
    )
    nursery.told("first")
    processes.end(nursery.marks)
    stubborn.wait()
    assert [*processes.marked(nursery.marks)] == []


def test_only_all_the_marks_together_are_a_mark(nursery: Nursery) -> None:
    """Another turn of the same root goes on."""
    other = nursery.shell("exec sleep 600")
    processes.end({**nursery.marks, "AGENTSDIR_TURN": "another"})
    assert other.poll() is None


def test_without_marks_nothing_is_marked(nursery: Nursery) -> None:
    """An empty set of marks is a subset of every environment."""
    bystander = nursery.shell("exec sleep 600", marked=False)
    assert [*processes.marked({})] == []
    assert processes.end({}) == []
    assert bystander.poll() is None


def test_a_process_that_is_over_ends_no_other(nursery: Nursery) -> None:
    """Its number may be another process's by now."""
    bystander = nursery.shell("exec sleep 600", marked=False)
    process = of(bystander)
    late = process._replace(started=process.started - 1)
    assert processes.with_descendants([late]) == []
    processes.end({}, [late])
    assert bystander.poll() is None


def test_who_ends_a_turn_from_inside_of_it_is_left_and_so_is_who_waits_for_it(
    nursery: Nursery, tmp_path: Path
) -> None:
    """A tool command may run agentsdir on its own turn: it and its ancestors carry the marks."""
    inside, said = tmp_path / "inside.py", tmp_path / "said"
    inside.write_text(
        "from agentsdir.adapters import processes\n"
        f"processes.end({nursery.marks!r})\n"
        "print('over')\n"
    )
    shell = nursery.shell(
        f"setsid bash -c '{SLEEPER}' & until [ -s $PIDS/sleeper ]; do sleep 0.01; done; "
        f"{sys.executable} {inside} >{said}; echo outlived >>{said}"
    )
    assert shell.wait() == 0
    assert said.read_text() == "over\noutlived\n"
    assert processes.find(int((nursery.folder / "sleeper").read_text())) is None
