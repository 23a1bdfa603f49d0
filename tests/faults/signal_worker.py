"""Runs command lines in forks of itself, and sends each a signal at one of its system calls.

Run as a program. Each line on stdin is a JSON object: `arguments` of the command line, a `signal`
and `at`, the number of the call before which it comes (0: never). For each it answers with one:
`code` as a shell has it, `err`, `out`, and the number of `calls` that were made.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from importlib import import_module
from typing import Any

from agentsdir.cli.main import main

# What `main` imports, and would import anew in every fork.
for late in ("environment", "command_line", "commands.send", "commands.suspend", "commands.resume"):
    import_module(f"agentsdir.cli.{late}")

NAMES = ("open", "write", "fsync", "ftruncate", "rename", "replace", "mkdir", "close", "unlink")


class Watch:
    """Counts system calls, and sends this process a signal before one of them."""

    def __init__(self, number: int, at: int, report: int) -> None:
        self._number = number
        self._at = at
        self._report = report
        self._calls = 0

    def __call__(self, call: Any) -> Any:
        """Return `call`, watched."""

        def watched(*arguments: Any, **options: Any) -> Any:
            self._calls += 1
            os.pwrite(self._report, b"%d" % self._calls, 0)
            if self._calls == self._at:
                signal.raise_signal(self._number)
            return call(*arguments, **options)

        return watched


def run(job: dict[str, Any], report: int, out: int, err: int) -> None:
    """Become the command line, in a fork; never returns."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # else it is the pipe that brings the jobs
    os.dup2(out, 1)
    os.dup2(err, 2)
    watch = Watch(job["signal"], job["at"], report)
    for name in NAMES:
        setattr(os, name, watch(getattr(os, name)))
    fcntl.flock = watch(fcntl.flock)
    time.sleep = watch(time.sleep)
    sys.argv = ["agentsdir", *job["arguments"]]
    main()


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Run one command line and say how it ended."""
    files = [os.memfd_create(name) for name in ("report", "out", "err")]
    child = os.fork()
    if child == 0:
        try:
            run(job, *files)
        finally:
            os._exit(99)
    _, status = os.waitpid(child, 0)
    calls, out, err = (os.pread(file, 1024 * 1024, 0).decode() for file in files)
    for file in files:
        os.close(file)
    ended = os.waitstatus_to_exitcode(status)
    code = ended if ended >= 0 else 128 - ended
    return {"code": code, "out": out, "err": err, "calls": int(calls or 0)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
