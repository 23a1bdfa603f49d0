"""A crowd of processes that send to many agents, and one that kills them: a program.

It takes a job as JSON (see `main`). Processes are forked, as starting an interpreter for each would
take longer than all the rest. What a sender gets, it writes down before it goes on; one that is
killed is replaced, and the next one begins with the message that its forerunner was at.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from indoors import agentsdir, drain, surroundings

from agentsdir.cli.exits import code_of
from agentsdir.cli.services import services_of
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import WaitLimits, send_message
from agentsdir.engine.inbox import Message, enqueue, text_message
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.store import locks

# How a message is sent: waiting for a slot, taking what there is, or only left in the queue.
WAYS = ("patient", "patient", "hasty", "queued")
WAITS = {"patient": WaitLimits(100, 100), "hasty": WaitLimits(locks.FOREVER, 0)}


def settle(script: str, count: int) -> list[str]:
    """Make the agents."""
    services, options = services_of(surroundings()), {"file": script}
    wanted = NewAgent(login="me", cwd=str(Path.cwd()), provider="counted", options=options)
    return [create_agent(services, wanted) for _ in range(count)]


def send(job: dict[str, Any], agents: list[str], worker: int) -> None:
    """Send one message after another, as the worker's own chance says, and note each answer."""
    chance = random.Random(f"{job['seed']} {worker}")
    notes = Path(job["notes"]) / f"worker-{worker}"
    done = len(notes.read_bytes().splitlines()) if notes.exists() else 0
    with notes.open("ab", buffering=0) as file:
        number = 0
        while number < job["messages"] or not (Path(job["notes"]) / "enough").exists():
            # Few agents get most of it, so that senders meet.
            agent = agents[int(len(agents) * chance.random() ** 3)]
            way, message = chance.choice(WAYS), f"m{worker:03}x{number:019}"
            number += 1
            if number <= done:
                continue
            code, error = say_one(agent, message, way)
            note = {"agent": agent, "message": message, "code": code, "way": way, "err": error}
            file.write(json.dumps(note).encode() + b"\n")


def say_one(agent: str, message: str, way: str) -> tuple[int, str]:
    """Do what the command `send`, or `queue`, does; return its exit code and its complaint."""
    services = services_of(surroundings())
    paths, said = services.layout.agent(agent), Message(text_message(message), id=message)
    try:
        if way == "queued":
            enqueue(services, paths, said)
        else:
            send_message(services, paths, said, TurnOptions(lambda _event: None), WAITS[way])
    except AgentsdirError as error:
        return int(code_of(error)), error.message
    return 0, ""


def begin(job: dict[str, Any], agents: list[str], worker: int) -> int:
    """Start one sender."""
    pid = os.fork()
    if pid == 0:
        send(job, agents, worker)
        sys.exit()
    return pid


def main() -> None:
    """Do a job: `script`, `agents`, `workers`, `messages` (of each, at least), `kills`, `seed`.

    `notes` is the folder for what the senders get.
    """
    job = json.loads(sys.argv[1])
    chance = random.Random(job["seed"])
    agents = settle(job["script"], job["agents"])
    say_one(
        agents[0], f"first{0:019}", "patient"
    )  # so that every process that is forked has its modules
    workers = {begin(job, agents, number): number for number in range(job["workers"])}
    for _ in range(job["kills"]):
        time.sleep(chance.uniform(0.0, 0.1))
        pid = chance.choice(sorted(workers))
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        number = workers.pop(pid)
        workers[begin(job, agents, number)] = number
    (Path(job["notes"]) / "enough").touch()
    for pid in workers:
        assert os.waitpid(pid, 0)[1] == 0
    if job["kills"]:
        code, _, err = agentsdir("restore")
        assert code == 0, err
    drain()


if __name__ == "__main__":
    main()
