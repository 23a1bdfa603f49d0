"""`agentsdir chat --jsonl` under load: many requests, long lines, a reader that does not read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import orjson
import pytest
from commands import until

LINE_LIMIT = 16 * 1024 * 1024
HUGE = 100 * 1024 * 1024


def started(shell: Any, **options: Any) -> subprocess.Popen[bytes]:
    """Begin a process of the protocol."""
    return subprocess.Popen(
        [sys.executable, "-m", "agentsdir.cli.main", "chat", "--jsonl"],
        env=shell.environment(),
        cwd=shell.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    )


def line(request_id: Any, verb: str, *args: Any, **fields: Any) -> bytes:
    """Return a request as a line."""
    return orjson.dumps({"id": request_id, "verb": verb, "args": args, **fields}) + b"\n"


def exits(said: bytes) -> dict[Any, int]:
    """Return request id → exit code; each id has one, after which nothing comes."""
    found: dict[Any, int] = {}
    for answer in map(orjson.loads, said.splitlines()):
        assert answer["id"] is None or answer["id"] not in found
        if "exit" in answer:
            found[answer["id"]] = answer["exit"]
    return found


def test_a_thousand_requests_one_damaged_one_interrupted(shell: Any) -> None:
    """Each has one exit, and nothing comes after it; the others are as if these were not."""
    agents = [shell.new("--name", f"agent-{n}") for n in range(4)]
    (shell.root / "settings.toml").write_text('durability = "never"\n')
    slow = shell.script("sleeps.jsonl", "--name", "slow")
    lines = [line("slow", "send", "slow", "hi")]
    for n in range(998):
        to = n % 4
        verbs = {0: ("list",), 1: ("inspect", agents[to]), 2: ("send", agents[to], str(n))}
        lines.append(line(n, *verbs.get(n % 9, ("tag", f"agent-{to}", f"+t{n % 8}"))))
    lines.insert(500, b'{"id": 7000, "verb": "se\n')

    with started(shell) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for one in lines:
            process.stdin.write(one)
        process.stdin.flush()
        until(lambda: any(r["event"] == "turn.start" for r in shell.log(slow)), "the turn begins")
        process.stdin.write(line("cancel", "cancel", "slow"))
        said = process.communicate()[0]

    assert process.returncode == 0
    assert exits(said) == {**dict.fromkeys(range(998), 0), "slow": 130, None: 2, "cancel": 0}
    for place, agent in enumerate(agents):
        sent = [record["data"]["content"][0]["text"] for record in shell.log(agent)
                if record["event"] == "message.enqueued"]  # fmt: skip
        wanted = [str(n) for n in range(998) if n % 4 == place and n % 9 == 2]
        assert sent == wanted
        assert sum(r["event"] == "turn.complete" for r in shell.log(agent)) == len(wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells a process's memory")
def test_a_huge_line_is_refused_in_bounded_memory(shell: Any) -> None:
    """The next line is read, and one of just the limit is taken."""
    shell.new("--name", "demo")
    fits = line("fits", "send", "demo", "x")[:-2]
    fits += b" " * (LINE_LIMIT - len(fits) - 1) + b"}"

    with started(shell) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line("first", "list"))
        process.stdin.flush()
        said = b""
        while b'"exit"' not in said:
            said += process.stdout.readline()
        before = most_memory(process.pid)
        for _ in range(HUGE // 1024 // 1024):
            process.stdin.write(b"x" * 1024 * 1024)
        process.stdin.write(b"\n" + fits + b"\n" + line("next", "list"))
        process.stdin.flush()
        while b'"next","exit"' not in said:
            said += process.stdout.readline()
        after = most_memory(process.pid)
        said += process.communicate()[0]

    assert exits(said) == {"first": 0, None: 2, "next": 0, "fits": 0}
    (error,) = [answer["error"] for answer in map(orjson.loads, said.splitlines())
                if "error" in answer]  # fmt: skip
    assert error["kind"] == "too-long"
    assert after - before < 4 * LINE_LIMIT


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells a process's memory")
def test_bad_lines_whose_errors_are_not_read_are_not_read_themselves(shell: Any) -> None:
    """Memory stays bounded, and a reader that reads late gets each error."""
    bad = 400_000

    with started(shell) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"x\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.readline()
        before = most_memory(process.pid)
        writer = threading.Thread(target=process.stdin.write, args=(b"x\n" * bad,))
        writer.start()
        time.sleep(3)  # unbounded, it would have read all by now; if not, the test is only easier
        assert writer.is_alive()
        count = 0
        while count < 2 * bad:  # an error and an exit for each
            count += process.stdout.read1().count(b"\n")
        writer.join()
        most = most_memory(process.pid)
        process.stdin.close()
        assert process.wait() == 0

    assert most - before < 2 * LINE_LIMIT


def most_memory(pid: int) -> int:
    """Return the most bytes that a process has had in memory."""
    with open(f"/proc/{pid}/status") as found:  # noqa: PTH123
        return next(int(row.split()[1]) for row in found if row.startswith("VmHWM")) * 1024


def test_a_reader_that_reads_late_gets_every_line(shell: Any) -> None:
    """Meanwhile other agents' turns are recorded, and a turn can be cancelled."""
    blocks = b"".join(
        orjson.dumps({"type": "block_complete", "blockId": f"b{n}", "block": {
            "type": "assistant_text", "id": f"b{n}", "content": "y" * 100_000}}) + b"\n"
        for n in range(100)
    )  # fmt: skip
    talk = shell.cwd / "talk.jsonl"
    talk.write_bytes(b'{"type":"turn"}\n' + blocks)
    shell.script(str(talk), "--name", "talks")
    slow = shell.script("sleeps.jsonl", "--name", "slow")
    quick = shell.new("--name", "quick")

    with started(shell) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line(1, "send", "talks", "hi"))
        process.stdin.write(line(2, "send", "slow", "hi"))
        process.stdin.flush()
        until(lambda: any(r["event"] == "turn.start" for r in shell.log(slow)), "the turn begins")
        time.sleep(0.5)  # all buffers are full now; if they are not yet, the test is only easier
        process.stdin.write(line(3, "queue", "quick", "hi"))
        process.stdin.write(line(4, "cancel", 2))
        process.stdin.flush()
        until(lambda: any(r["event"] == "turn.aborted" for r in shell.log(slow)), "it is cancelled")
        until(lambda: any(r["event"] == "message.enqueued" for r in shell.log(quick)), "queued")
        said = process.communicate()[0]

    assert exits(said) == {1: 0, 2: 130, 3: 0, 4: 0}
    values = [a["value"] for a in map(orjson.loads, said.splitlines()) if a["id"] == 1
              and "value" in a]  # fmt: skip
    texts = [v for v in values if v["type"] == "block_complete"
             and v["block"]["type"] == "assistant_text"]  # fmt: skip
    assert [len(v["block"]["content"]) for v in texts] == [100_000] * 100


@pytest.mark.skipif(sys.platform != "linux", reason="/proc names children")
def test_a_killed_child_is_an_error_of_its_request(shell: Any) -> None:
    """And of no other; the process goes on."""
    slow = shell.script("sleeps.jsonl", "--name", "slow")

    with started(shell) as process:
        assert process.stdin is not None
        process.stdin.write(line(1, "send", "slow", "hi"))
        process.stdin.flush()
        until(lambda: any(r["event"] == "turn.start" for r in shell.log(slow)), "the turn begins")
        (child,) = children(process.pid)
        os.kill(child, signal.SIGKILL)
        process.stdin.write(line(2, "list"))
        said = process.communicate()[0]

    assert exits(said) == {1: 128 + signal.SIGKILL, 2: 0}
    errors = [answer["error"] for answer in map(orjson.loads, said.splitlines())
              if "error" in answer]  # fmt: skip
    assert [(error["kind"], error["exitCode"]) for error in errors] == [("killed", 137)]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc names children")
def test_children_are_used_again_and_few_of_them_wait(shell: Any) -> None:
    """One that was killed while it waited is replaced; many at once leave at most a few."""
    names = [f"agent-{n}" for n in range(8)]
    for name in names:
        shell.new("--name", name)

    with started(shell) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def do(*requests: bytes) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"".join(requests))
            process.stdin.flush()
            left = len(requests)
            while left:
                left -= process.stdout.readline().endswith(b'"exit":0}\n')

        do(line(1, "send", names[0], "hi"))
        (first,) = children(process.pid)
        do(line(2, "send", names[0], "hi"))
        assert children(process.pid) == [first]
        os.kill(first, signal.SIGKILL)
        # Before that is noticed, a request may still be given to it, and fails as killed.
        until(lambda: first not in children(process.pid), "the killed one is gone")
        do(line(3, "send", names[0], "hi"))
        do(*(line(f"n-{name}", "send", name, "hi") for name in names))
        until(lambda: len(children(process.pid)) <= 4, "few wait")
        waiting = children(process.pid)
        do(line(4, "send", names[0], "hi"))
        assert set(children(process.pid)) <= set(waiting)
        assert process.communicate()[0] == b""
    assert process.returncode == 0


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    with open(f"/proc/{pid}/task/{pid}/children") as found:  # noqa: PTH123
        return [int(child) for child in found.read().split()]
