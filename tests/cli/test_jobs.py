"""`parse` of many sessions in several processes: the same bytes, whatever happens on the way."""

from __future__ import annotations

import filecmp
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

AGENTSDIR = str(Path(sys.executable).with_name("agentsdir"))
SESSIONS = 24
WORDS = "x" * 40_000
PATIENCE = 60


def rows(session: int) -> list[dict[str, Any]]:
    """Return a prompt and long answers; each third session repeats messages of the one before."""
    name = f"0000{session:04d}-0000-4000-8000-000000000000"
    origin = session - 1 if session % 3 == 0 and session else session
    given: list[dict[str, Any]] = [{"type": "user", "uuid": f"u{session}", "parentUuid": None}]
    given[0]["message"] = {"role": "user", "content": "hi"}
    for number in range(10):
        message = {"id": f"m{origin}-{number}", "role": "assistant", "model": "m"}
        usage = {"input_tokens": 3, "output_tokens": 5 + session}
        content = [{"type": "text", "text": WORDS}]
        answer = {"type": "assistant", "uuid": f"a{session}-{number}", "requestId": "r"}
        given.append({**answer, "message": {**message, "content": content, "usage": usage}})
    for row in given:
        row.update(isSidechain=False, sessionId=name, timestamp="2026-01-02T03:04:05.678Z")
        row.setdefault("parentUuid", f"u{session}")
    return given


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of sessions that several processes read: some damaged, some not UTF-8."""
    made = tmp_path_factory.mktemp("sessions")
    for session in range(SESSIONS):
        data = b"".join(orjson.dumps(row) + b"\n" for row in rows(session))
        if session % 5 == 1:
            data += b'{"type":"user"\n{"type":"news"}\n'
        (made / f"{session:04d}.jsonl").write_bytes(data)
    (made / os.fsdecode(b"caf\xe9.jsonl")).write_bytes(orjson.dumps(rows(99)[0]) + b"\ndamaged\n")
    (made / "other.json").write_text("{}")
    assert sum(path.stat().st_size for path in made.iterdir()) > 8 * 1024 * 1024
    return made


def parse(folder: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run `parse` there and return what it printed."""
    command = [AGENTSDIR, "parse", *arguments, "."]
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        command, cwd=folder, stderr=subprocess.PIPE, check=False, timeout=PATIENCE, **options
    )


def started(folder: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start `parse` with two processes, which have begun when this returns."""
    command = [AGENTSDIR, "parse", "--jobs", "2", "--view", "all", *["."] * 20]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stderr=subprocess.PIPE,
        # A shell starts its background jobs, such as a test run, with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )
    deadline = time.monotonic() + PATIENCE
    while not children_of(process.pid):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    return process


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def end_soon(pids: list[int]) -> None:
    """Wait until none of these processes runs any more."""
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
        assert time.monotonic() < deadline, "a process was left behind"
        time.sleep(0.01)


@pytest.mark.parametrize("options", [[], ["--view", "all", "--hidden"]], ids=["live", "all"])
def test_any_number_of_processes_prints_the_same(folder: Path, options: list[str]) -> None:
    """Blocks, remarks on stderr, the report, and the exit code."""
    alone = parse(folder, "--jobs", "1", *options)
    reported = parse(folder, "--jobs", "1", "--report", "-", *options)
    assert alone.returncode == 3
    assert b"0001.jsonl" in alone.stderr
    assert orjson.loads(reported.stderr)["usage"]["totalTokens"]
    for jobs in ("2", "3", "0"):
        done = parse(folder, "--jobs", jobs, *options)
        assert (done.returncode, done.stdout == alone.stdout) == (3, True)
        assert done.stderr == alone.stderr
        done = parse(folder, "--jobs", jobs, "--report", "-", *options)
        assert done.stderr == reported.stderr


def test_ctrl_c_ends_all_of_them(folder: Path) -> None:
    """The terminal sends it to each; none says anything."""
    process = started(folder, stdout=subprocess.PIPE, start_new_session=True)
    below = children_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")
    end_soon(below)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_one_that_started_it(folder: Path, number: int) -> None:
    """Also where that one could not end them."""
    process = started(folder, stdout=subprocess.PIPE)
    below = children_of(process.pid)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode in (128 + number, -number)
    assert said == b""
    end_soon(below)


def test_a_reader_that_leaves_ends_all_of_them(folder: Path) -> None:
    """As `head -1` does: without a word, with the exit code of a closed pipe."""
    process = started(folder, stdout=subprocess.PIPE)
    below = children_of(process.pid)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    process.wait(timeout=PATIENCE)
    assert process.stderr is not None
    assert (process.returncode, process.stderr.read()) == (141, b"")
    process.stderr.close()
    end_soon(below)


def test_a_full_disk_is_said_once(folder: Path) -> None:
    """The same exit code and the same line as from one process."""
    with Path("/dev/full").open("wb") as full:
        alone = parse(folder, "--jobs", "1", stdout=full)
        done = parse(folder, "--jobs", "2", stdout=full)
    assert (done.returncode, done.stderr) == (alone.returncode, alone.stderr)
    assert b"No space left" in done.stderr


def test_a_killed_process_costs_nothing(folder: Path, tmp_path: Path) -> None:
    """What it had is read again."""
    with (tmp_path / "alone").open("wb") as alone, (tmp_path / "killed").open("wb") as output:
        expected = parse(folder, "--jobs", "1", "--view", "all", *["."] * 19, stdout=alone)
        process = started(folder, stdout=output)
        os.kill(children_of(process.pid)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (3, expected.stderr)
    assert filecmp.cmp(alone.name, output.name, shallow=False)


def test_no_number_below_none_is_taken(folder: Path) -> None:
    """A usage error, before anything is read."""
    assert parse(folder, "--jobs", "-1").returncode == 2
