"""Runs a command again and again, killed after its first record, its second, and so on: a program.

It takes a job as JSON (see `main`). Everything is forked, as starting an interpreter for each would
take longer than all the rest: also what an `actor` runs in its turn, which is not killed.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import counted
from indoors import agentsdir, drain

from agentsdir.formats.store.agent import AgentWriter

KILLED = 137


def apart(work: Any) -> int:
    """Do something in a forked process; return how it ended."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work() or 0
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def die_after(records: int) -> None:
    """Have this process die as soon as it has written so many records."""
    left = iter(range(records - 1, -1, -1))
    whole = AgentWriter.append

    def append(writer: AgentWriter, *given: Any, **named: Any) -> Any:
        done = whole(writer, *given, **named)
        if next(left) == 0:
            os._exit(KILLED)
        return done

    AgentWriter.append = append  # type: ignore[method-assign]


def fork_shell(command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command line of `agentsdir` in a forked process that dies of nothing."""
    reading, writing = os.pipe()

    def work() -> int:
        AgentWriter.append = WHOLE  # type: ignore[method-assign]
        code, out, err = agentsdir(*shlex.split(command)[1:], variables=environment)
        os.write(writing, (out + err).encode())
        return code

    code = apart(work)
    os.close(writing)
    with os.fdopen(reading) as said:
        return subprocess.CompletedProcess([], code, said.read(), "")


WHOLE = AgentWriter.append


def mend(out: Path, *, late: bool) -> int:
    """Restore, run what is left, and write down every log and what `validate` says.

    Args:
        late: first run what waits, as a user does who has seen no accident.
    """
    if late:
        drain()
    code, said, complaint = agentsdir("restore")
    drain()
    root = Path(os.environ["AGENTSDIR_ROOT"])
    logs = {
        path.parent.name: [json.loads(line) for line in path.read_bytes().splitlines()]
        for path in sorted(root.glob("agents/[!.]*/events.jsonl"))
    }
    flaws = agentsdir("validate")[1]
    restored = {"code": code, "out": said, "err": complaint}
    out.write_text(json.dumps({"logs": logs, "validate": flaws, "restore": restored}))
    return 0


def main() -> None:
    """Do a job: `places` (folder → the copy it begins as), `command`, `late`, `out` (a folder)."""
    job = json.loads(sys.argv[1])
    counted.shell = fork_shell
    # Once as it should go, and here, so that every process that is forked has its modules.
    agentsdir(*job["command"])
    mend(Path(job["out"]) / "000.json", late=False)
    for records in count(1):
        for place, copy in job["places"].items():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(copy, place)

        def work(records: int = records) -> int:
            die_after(records)
            return agentsdir(*job["command"])[0]

        code = apart(work)
        out = Path(job["out"]) / f"{records:03}.json"
        assert apart(lambda out=out: mend(out, late=job["late"])) == 0
        if code != KILLED:
            break


if __name__ == "__main__":
    main()
