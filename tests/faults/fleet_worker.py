"""One process of a fleet: works on an agents directory and says what was acknowledged.

Run as a program with one JSON argument (see `fleet.Job`). Each acknowledgement is a line on stdout,
written only when the work it names has returned. Ends without a word when the disk refuses.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from agentsdir.cli.environment import Environment
from agentsdir.cli.services import services_of
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.engine.lookup import find_agent
from agentsdir.engine.settings import rename
from agentsdir.engine.slots import resume, suspend
from agentsdir.formats.errors import AgentsdirError, NotRecorded, Uncertain
from agentsdir.formats.store import agent as agent_module
from agentsdir.formats.store import locks, log
from agentsdir.formats.store.agent import Reading, write_agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def say(text: str) -> None:
    """Acknowledge, at once."""
    os.write(1, f"{text}\n".encode())


def record(job: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the data of an event that a fold passes over: who wrote it, its number, a filling."""
    return {"hook": f"{job['name']}-{number}", "message": "x" * job["size"]}


def appends(job: dict[str, Any], env: Environment) -> Iterator[str]:
    """Append one record after another."""
    paths, now = find_agent(env.layout, job["agent"]), services_of(env).now
    for number in range(job["count"]):
        with write_agent(paths) as writer:
            writer.append("hook.failed", record(job, number), now())
        yield f"{job['name']}-{number}"


def sends(job: dict[str, Any], env: Environment) -> Iterator[str]:
    """Send one prompt after another."""
    paths = find_agent(env.layout, job["agent"])
    for number in range(job["count"]):
        text = f"{job['name']}-{number} {'x' * job['size']}"
        send(services_of(env), paths, [{"type": "text", "text": text}], lambda _: None)
        yield f"{job['name']}-{number}"


def creations(job: dict[str, Any], env: Environment) -> Iterator[str]:
    """Make one agent after another."""
    for _ in range(job["count"]):
        yield create_agent(services_of(env), NewAgent(login="me", cwd="/"))


def names(job: dict[str, Any], env: Environment) -> Iterator[str]:
    """Make one agent after another and give each another name; say the name that it has now."""
    services = services_of(env)
    for number in range(job["count"]):
        name = f"{job['name']}-{number}"
        made = create_agent(services, NewAgent(login="me", cwd="/", name=f"first-{name}"))
        rename(services, env.layout.agent(made), name)
        yield name


def suspensions(job: dict[str, Any], env: Environment) -> Iterator[str]:
    """Suspend and resume; say what session.json must be now, or later than."""
    paths = find_agent(env.layout, job["agent"])
    for number in range(job["count"]):
        change = suspend if number % 2 == 0 else resume
        state = change(services_of(env), paths)
        yield f"{state.position.last_seq}"


WORK: dict[str, Callable[[dict[str, Any], Environment], Iterator[str]]] = {
    "appends": appends,
    "sends": sends,
    "creations": creations,
    "names": names,
    "suspensions": suspensions,
}


def without_fsync() -> None:
    """Break what is to be tested: the disk is never asked to keep anything."""
    os.fsync = os.fdatasync = lambda _descriptor: None  # type: ignore[assignment]


def without_lock() -> None:
    """Break what is to be tested: each process writes at any time, after a look at the log."""
    look = agent_module.read_agent

    def long_look(*arguments: Any, **options: Any) -> Reading:
        seen = look(*arguments, **options)
        time.sleep(0.005)  # while one sleeps the others run, however few processors there are
        return seen

    @contextmanager
    def open_door(*_: Any, **__: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(check=lambda: None)

    locks.hold = locks.hold_undisturbed = open_door  # type: ignore[assignment]
    agent_module.read_agent = long_look


def in_two_writes() -> None:
    """Break what is to be tested: a record goes out in two pieces."""
    whole = os.write

    def halves(descriptor: int, data: bytes) -> int:
        middle = len(data) // 2
        if descriptor <= 2 or not middle:
            return whole(descriptor, data)
        written = whole(descriptor, data[:middle])
        time.sleep(0.002)
        return written + whole(descriptor, data[middle:])

    os.write = halves  # type: ignore[assignment]


def slowly() -> None:
    """Let a record take its time, as on a disk that is busy, so that readers see parts of it."""
    whole, piece = os.write, 64 * 1024

    def in_pieces(descriptor: int, data: bytes) -> int:
        view = memoryview(data)
        for start in range(0, len(view), piece):
            whole(descriptor, view[start : start + piece])
            time.sleep(0.004 if len(view) > piece else 0)
        return len(view)

    os.write = in_pieces  # type: ignore[assignment]


SABOTAGE = {
    "fsync": without_fsync,
    "lock": without_lock,
    "pieces": in_two_writes,
    "slow": slowly,
}


def main() -> None:
    """Do the job that the command line names."""
    job = json.loads(sys.argv[1])
    for name in job["sabotage"]:
        SABOTAGE[name]()
    assert log.os is agent_module.os is os
    env = Environment.of_process()
    env.root = job["root"]
    say("ready")
    if job["wait"]:
        sys.stdin.read(1)
    try:
        for acknowledged in WORK[job["work"]](job, env):
            say(acknowledged)
    except (NotRecorded, Uncertain, OSError):
        sys.exit(15)
    except AgentsdirError as error:
        # The disk may refuse a reading, too: of a file of the agent's, or of a transcript.
        if error.kind != "unreadable" and not error.message.endswith(os.strerror(errno.EIO)):
            raise
        sys.exit(15)


if __name__ == "__main__":
    main()
