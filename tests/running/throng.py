"""A hundred threads of one process and eight other processes on one root: a program.

It takes a job as JSON (see `main`). Each worker sends, queues, interrupts, spawns and closes, as
its own chance says, and writes down what it got before it goes on. Each has services of its
own.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from indoors import drain, surroundings

from agentsdir.cli.services import services_of
from agentsdir.engine.cancel import TurnCancelled, interrupt
from agentsdir.engine.close import close
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import WaitLimits, run_child, send_message
from agentsdir.engine.extensions import Extensions
from agentsdir.engine.inbox import Message, enqueue, text_message
from agentsdir.engine.services import Services
from agentsdir.engine.spawn import SpawnRequest, create_child
from agentsdir.engine.tools import ToolContext, create_tool
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats import signals
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.store import locks
from agentsdir.formats.store.agent import read_agent

LATE = 60
"""Seconds after which every thread's stack is printed, and the program ends."""
WAYS = ("send", "send", "send", "hasty", "queue", "stop", "interrupt", "spawn", "close")
LIMITS = {"hasty": WaitLimits(locks.FOREVER, 0)}


def carry_out(given: dict[str, Any], context: ToolContext) -> str:
    """Note a call: one write, so that those of many do not mix."""
    path = Path(os.environ["HOME"]) / "calls"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{context.turn_id} {context.tool_use_id}\n".encode())
    os.close(descriptor)
    return str(given["command"])


SHELL = create_tool("shell", {"type": "object"}, carry_out)


def services() -> Services:
    """Return the services of one worker; what follows from its turns runs in its own thread."""
    env = surroundings()
    env.overrides = {"start_turn": None}
    return services_of(env)


def settle(job: dict[str, Any]) -> list[str]:
    """Make the agents: a third each are echoes, play the script, and play one that calls a tool."""
    made, own = [], services()
    kinds = (("counted", {"file": job["script"]}), ("script", {"file": job["calls"]}), ("echo", {}))
    for number in range(job["agents"]):
        provider, options = kinds[number % 3]
        wanted = NewAgent(login="me", cwd=str(Path.cwd()), provider=provider, options=options)
        made.append(create_agent(own, wanted))
    return made


def work(job: dict[str, Any], agents: list[str], name: str) -> None:
    """Do one thing after another, and note how each ended."""
    chance = random.Random(f"{job['seed']} {name}")
    own = services()
    with (Path(job["notes"]) / name).open("ab", buffering=0) as notes:
        for number in range(job["messages"]):
            # Few agents get most of it, so that senders meet; only the last ones are closed.
            agent = agents[int(len(agents) * chance.random() ** 2)]
            way, message = chance.choice(WAYS), f"{name}x{number:0{23 - len(name)}}"
            if way == "close":
                agent = chance.choice(agents[-job["mortal"] :])
            elif way == "interrupt":
                agent = next(filter(partial(runs, own), chance.sample(agents, len(agents))), agent)
            note = {"agent": agent, "message": message, "way": way}
            note["end"] = ended(lambda way=way, agent=agent, message=message: act(
                own, way, agent, message, chance
            ))  # fmt: skip
            notes.write(json.dumps(note).encode() + b"\n")


def runs(own: Services, agent: str) -> bool:
    """Tell whether a process or thread has an agent's turn."""
    return locks.is_held(own.layout.agent(agent).turn)


def ended(act: Callable[[], object]) -> str:
    """Do something, and return the kind of its error, empty for none."""
    try:
        act()
    except AgentsdirError as error:
        return error.kind
    except TurnCancelled:
        return "interrupted"
    except KeyboardInterrupt:
        return "stopped"
    return ""


def heed(stop: threading.Event) -> None:
    """Raise what Ctrl-C raises in the main thread, once each time that it is set."""
    if stop.is_set():
        stop.clear()
        raise KeyboardInterrupt


def act(own: Services, way: str, agent: str, message: str, chance: random.Random) -> None:
    """Do one thing."""
    paths = own.layout.agent(agent)
    options = TurnOptions(lambda _event: None, extensions=Extensions(tools={"shell": SHELL}))
    said = Message(text_message(message), id=message)
    if way == "queue":
        enqueue(own, paths, said)
    elif way == "interrupt":
        interrupt(own, paths)
    elif way == "close":
        close(own, paths)
    elif way == "spawn":
        parent = read_agent(paths).state
        wanted = SpawnRequest(text_message(message), base=parent.agent_id)
        child = create_child(own, paths, wanted, turn_id=None, sync=False)
        run_child(own, child, options, WaitLimits())
    elif way == "stop":
        stop = threading.Event()
        timer = threading.Timer(chance.uniform(0, 0.5), stop.set)
        timer.start()
        try:
            with signals.looking(partial(heed, stop)):
                send_message(own, paths, said, options)
        finally:
            timer.cancel()
            timer.join()
    else:
        send_message(own, paths, said, options, LIMITS.get(way, WaitLimits()))


def main() -> None:
    """Do a job: `agents`, `threads`, `processes`, `messages` (of each worker), `seed`.

    `script` and `calls` are the scripts of agents, `mortal` is how many of them may be closed,
    `notes` the folder for what the workers got.
    """
    job = json.loads(sys.argv[1])
    agents = settle(job)
    # So that every process that is forked has its modules.
    act(services(), "send", agents[0], f"first{0:019}", random.Random(0))
    children = []
    for number in range(job["processes"]):
        if (pid := os.fork()) == 0:
            work(job, agents, f"p{number:03}")
            os._exit(0)
        children.append(pid)
    faulthandler.dump_traceback_later(LATE, exit=True)  # none of its threads is in a child
    threads = [
        threading.Thread(target=work, args=(job, agents, f"t{number:03}"))
        for number in range(job["threads"])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    drain()


if __name__ == "__main__":
    main()
