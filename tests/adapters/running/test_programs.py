"""Running a program: its lines, what it says on the side, and that it never outlives who ran it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from commands import until

from agentsdir.adapters import processes
from agentsdir.adapters.processes import Program
from agentsdir.adapters.protocol import Host
from agentsdir.formats.errors import ProviderError
from agentsdir.formats.rows import LINE_CAP


@pytest.fixture
def marks() -> dict[str, str]:
    """Return marks that no other process has."""
    return {"AGENTSDIR_TURN": uuid4().hex}


@pytest.fixture
def start(tmp_path: Path, marks: dict[str, str]) -> Iterator[Callable[[str], Program]]:
    """Return a function that runs Python code as a program; what still runs is ended."""
    started: list[Program] = []

    def run(code: str) -> Program:
        program = Program(
            [sys.executable, "-c", code],
            cwd=str(tmp_path),
            environment={"PATH": os.defpath, **marks},
        )
        started.append(program)
        return program

    yield run
    for program in started:
        program.end(marks)


def test_lines_come_one_by_one_and_the_last_one_even_unfinished(
    start: Callable[[str], Program],
) -> None:
    """Nothing is added to a line that has no end."""
    program = start("import os; os.write(1, b'one\\n\\ntwo\\r\\nthree')")
    assert [*program.lines()] == [b"one\n", b"\n", b"two\r\n", b"three"]
    assert program.wait(60) == 0


def test_a_conversation_goes_back_and_forth(start: Callable[[str], Program]) -> None:
    """What is written arrives, and the end of the input is seen."""
    program = start("import sys\nfor line in sys.stdin: print('>', line, end='', flush=True)")
    heard = []
    program.write(b"0\n")
    for number, line in enumerate(program.lines(), 1):
        heard.append(line)
        program.write(b"%d\n" % number) if number < 3 else program.close_input()
    assert heard == [b"> 0\n", b"> 1\n", b"> 2\n"]


def test_a_flood_on_every_pipe_at_once_blocks_neither_process(
    start: Callable[[str], Program],
) -> None:
    """The program reads its input only after it has filled both of its outputs."""
    size = 4_000_000
    program = start(
        "import sys\n"
        f"sys.stderr.write('e' * {size} + 'end'); sys.stderr.flush()\n"
        f"print('o' * {size}, flush=True)\n"
        "print(len(sys.stdin.read()), flush=True)"
    )
    program.write(b"i" * size + b"\n")
    program.close_input()
    first, second = program.lines()
    assert len(first) == size + 1
    assert second == b"%d\n" % (size + 1)
    assert program.errors.endswith("eeend")
    assert len(program.errors) <= 64 * 1024


def test_a_line_beyond_the_cap_is_cut_and_the_next_one_is_whole(
    start: Callable[[str], Program],
) -> None:
    """Memory stays bounded whatever a program says."""
    program = start(f"print('x' * {LINE_CAP + 3_000_000}); print('whole')")
    first, second = program.lines()
    assert LINE_CAP <= len(first) < LINE_CAP + 1_000_000
    assert (first[-1:], second) == (b"\n", b"whole\n")


def test_waiting_for_lines_ends_in_time_and_can_go_on(start: Callable[[str], Program]) -> None:
    """A silent program is left alone, and heard again later."""
    program = start("import sys; sys.stdin.readline(); print('late')")
    assert [*program.lines(0.05)] == []
    program.write(b"go\n")
    assert [*program.lines()] == [b"late\n"]


def test_who_does_not_read_its_input_is_heard_all_the_same(start: Callable[[str], Program]) -> None:
    """A broken pipe is no error of ours: why it went, it says itself."""
    program = start("import os, sys; os.close(0); print('deaf'); sys.stderr.write('gone'); exit(3)")
    program.write(b"x" * 1_000_000)
    assert [*program.lines()] == [b"deaf\n"]
    assert (program.wait(60), program.errors) == (3, "gone")


def test_errors_that_are_no_text_are_shown_as_far_as_they_are(
    start: Callable[[str], Program],
) -> None:
    """Never raises."""
    program = start("import os; os.write(2, b'bad \\xff byte\\n'); os.write(1, b'x\\n')")
    assert [*program.lines()] == [b"x\n"]
    assert program.wait(60) == 0
    assert program.errors == "bad � byte"


def test_it_has_a_session_of_its_own_and_none_of_our_files(
    start: Callable[[str], Program], tmp_path: Path
) -> None:
    """Ctrl-C at the terminal reaches us alone, and a lock that we hold is ours alone."""
    with (tmp_path / "held").open("w") as held:
        ours = held.fileno()
        os.set_inheritable(ours, True)
        program = start("import os; print(os.getsid(0), *os.listdir('/proc/self/fd'))")
        (line,) = program.lines()
    session, *files = map(int, line.split())
    assert session == program.process.pid != os.getsid(0)
    assert sorted(files)[:3] == [0, 1, 2]
    assert ours not in files


@pytest.mark.parametrize(
    ("command", "cwd", "kind", "named"),
    [
        (["no-such-program-anywhere"], ".", "no-client", "no-such-program-anywhere"),
        (["true"], "gone", "no-folder", "gone"),
        (["./note"], ".", "no-client", "./note"),
    ],
)
def test_what_cannot_be_run_is_named(
    tmp_path: Path, command: list[str], cwd: str, kind: str, named: str
) -> None:
    """A missing program, a missing folder, and a file that is no program."""
    (tmp_path / "note").write_text("no program")
    with pytest.raises(ProviderError, match=named) as refused:
        Program(command, cwd=str(tmp_path / cwd), environment={"PATH": os.defpath})
    assert refused.value.kind == kind


@pytest.mark.parametrize("entry", ["", ".", "here"])
def test_no_program_is_found_by_a_relative_entry_of_the_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    """It would be another one in the agent's folder, where the client starts."""
    for folder in ("launch", "launch/here", "bin"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "client").write_text("#!/bin/sh\n")
        (tmp_path / folder / "client").chmod(0o755)
    monkeypatch.chdir(tmp_path / "launch")
    assert processes.find_program("client", {"PATH": f"{entry}:/nowhere"}) is None
    found = processes.find_program("client", {"PATH": f"{entry}:{tmp_path}/bin"})
    assert found == str(tmp_path / "bin/client")
    # A path is the user's own word for it, and means the same wherever the client starts.
    assert processes.find_program("./client", {}) == str(tmp_path / "launch/client")
    host = Host(tmp_path, {"PATH": f"{entry}:{tmp_path}/bin:"})
    assert processes.environment_of(host, frozenset())["PATH"] == f"{tmp_path}/bin"


def test_the_end_is_the_end_of_all_that_it_started(
    start: Callable[[str], Program], marks: dict[str, str]
) -> None:
    """Also of what runs in another session, and of what is no longer its child."""
    program = start(
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "subprocess.run(['sh', '-c', 'setsid sleep 600 &'])\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    assert next(program.lines()) == b"ready\n"
    # A process that is just becoming another program has no environment for a moment.
    until(lambda: len([*processes.marked(marks)]) == 3, "all three")
    program.end(marks)
    assert [*processes.marked(marks)] == []
    program.end(marks)
    assert [*program.lines()] == []


def test_the_end_is_asked_for_first(start: Callable[[str], Program], tmp_path: Path) -> None:
    """A client has its own things to write and to end."""
    program = start(
        "import pathlib, signal, sys, time\n"
        "def bye(*_): pathlib.Path('said').write_text('bye'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, bye); print('ready', flush=True); time.sleep(600)"
    )
    assert next(program.lines()) == b"ready\n"
    program.end({})
    assert (tmp_path / "said").read_text() == "bye"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_it_ends_when_who_runs_it_is_killed(marks: dict[str, str], tmp_path: Path) -> None:
    """Kill -9 leaves no time to end anything."""
    runner = tmp_path / "runner.py"
    runner.write_text(
        "import time\n"
        "from agentsdir.adapters.processes import Program\n"
        f"one = Program(['sleep', '600'], cwd='/', environment={{'PATH': '/bin', **{marks!r}}})\n"
        "print(one.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    holder = subprocess.Popen([sys.executable, runner], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    with holder.stdout:
        started = processes.find(int(holder.stdout.readline()))
    assert started is not None
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    until(lambda: not processes.is_alive(started), "it ends")
