"""Runs commands in turns and says what each run took: a JSON job on stdin, samples on stdout.

A process of its own, and a small one: until it has called exec, a child counts the memory of
its parent as its own, and the test runner's would hide what a command needs.
"""

from __future__ import annotations

import json
import os
import sys
import time


def once(argv: list[str], env: dict[str, str], cwd: str) -> tuple[float, int, float]:
    """Run one command with its output thrown away; return CPU seconds, peak KiB, seconds."""
    os.chdir(cwd)
    begin = time.monotonic()
    null = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in (0, 1)]
    child = os.posix_spawn(argv[0], argv, env, file_actions=null)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        raise SystemExit(f"{argv} ended with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss, time.monotonic() - begin


def main() -> None:
    """Run every command of the job once a round, so that a slow spell meets all of them."""
    job = json.load(sys.stdin)
    samples: dict[str, list[tuple[float, int, float]]] = {name: [] for name in job["commands"]}
    for _ in range(job["rounds"]):
        for name, argv in job["commands"].items():
            samples[name].append(once(argv, job["env"], job["cwd"]))
    json.dump(samples, sys.stdout)


if __name__ == "__main__":
    main()
