"""Starts processes that work on an agents directory, and reads what they acknowledge."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = Path(__file__).with_name("fleet_worker.py")


@dataclass(frozen=True)
class Job:
    """What one process is to do.

    Attributes:
        work: `appends`, `sends`, `creations`, `names` or `suspensions`.
        size: of one record's or prompt's filling, in bytes.
        sabotage: what to change first: `fsync` (there is none), `lock` (there is none), `pieces` (a
            record is two writes), `slow` (a record is many writes with pauses).
        wait: begin only when stdin says so.
    """

    work: str
    root: str
    agent: str = ""
    name: str = "a"
    count: int = 1_000_000
    size: int = 100
    sabotage: tuple[str, ...] = ()
    wait: bool = False


@contextmanager
def working(job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process for a job; it is ready when this enters, and dead when it leaves."""
    command = [sys.executable, str(WORKER), json.dumps(asdict(job))]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", process.communicate()
            yield process
        finally:
            process.kill()


def work_together(jobs: list[Job]) -> list[list[str]]:
    """Let all jobs begin at the same time; return what each acknowledged, when all are done."""
    with ExitStack() as stack:
        # One after another: imports of many at once would only be slower.
        running = [stack.enter_context(working(job)) for job in jobs]
        for process in running:
            assert process.stdin is not None
            process.stdin.write(b"!")
        done = [process.communicate(timeout=120) for process in running]
        for process, (_, complaint) in zip(running, done, strict=True):
            # Among many a writer may wait for long, and says so.
            others = [line for line in complaint.splitlines() if b": waiting: " not in line]
            assert (process.returncode, others) == (0, [])
    return [out.decode().split() for out, _ in done]
