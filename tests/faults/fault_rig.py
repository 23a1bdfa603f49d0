"""Two processes under the shim, kept busy from here, and what they found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

from fault_shim import Call, Control, Fault, build, preloaded
from fault_verbs import log_writes

SERVER = Path(__file__).with_name("fault_server.py")
SERVERS = 2


class Verdict(NamedTuple):
    """One case: the fault, the rules that it broke, and how the command went."""

    fault: Fault
    broken: list[str]
    calls: list[Call]
    done: str

    def __str__(self) -> str:
        fault = self.fault
        head = f"{fault.mode.name} at {fault.at}, errno {fault.error}, flags {int(fault.flags)}"
        near = [str(call) for call in self.calls[max(0, fault.at - 2) : fault.at + 3]]
        return "\n  ".join([head, *near, *(f"=> {text}" for text in self.broken)])


class Server:
    """One forking process; it works on one case at a time."""

    def __init__(self, library: Path, folder: Path) -> None:
        folder.mkdir()
        control = Control(folder / "control")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(SERVER), str(folder)],
            env=preloaded(library, control),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Hand over one request and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the fault server died on {request}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        """Let it end by itself, and make sure that it does."""
        try:
            self._process.communicate(timeout=30)
        finally:
            self._process.kill()


class Rig:
    """The servers, the roots they copy, and how commands go without a fault."""

    def __init__(self, folder: Path) -> None:
        self.library = build(folder)
        self._folder = folder
        self._servers = [Server(self.library, folder / f"server{n}") for n in range(SERVERS)]
        self._idle: Queue[Server] = Queue()
        for server in self._servers:
            self._idle.put(server)
        self._sound: dict[str, Verdict] = {}

    def sound(self, verb: str) -> Verdict:
        """Return how a command goes without a fault."""
        if verb not in self._sound:
            self._sound[verb] = self._run(verb, Fault(), "", prepare=True)
        return self._sound[verb]

    def run(self, verb: str, faults: Iterable[Fault], patch: str = "") -> list[Verdict]:
        """Run a command under each fault, on both servers.

        Args:
            patch: a function of fault_patches.py that breaks the product in the child.
        """
        self.sound(verb)
        with ThreadPoolExecutor(SERVERS) as pool:
            return list(pool.map(lambda fault: self._run(verb, fault, patch), faults))

    def _run(self, verb: str, fault: Fault, patch: str, *, prepare: bool = False) -> Verdict:
        template = self._folder / f"root of {verb}" / "root"
        server = self._idle.get()
        try:
            answer = server.ask(
                {
                    "verb": verb,
                    "template": str(template),
                    "prepare": prepare,
                    "fault": list(fault),
                    "patch": patch,
                    "logged": 0 if prepare else log_writes(self._sound[verb].calls),
                }
            )
        finally:
            self._idle.put(server)
        calls = [Call(*call) for call in answer["calls"]]
        return Verdict(fault, answer["broken"], calls, answer["done"])

    def process(
        self, root: Path, control: Control, *arguments: str, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run one command in a process of its own, under the shim."""
        done = subprocess.run(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            env={**preloaded(self.library, control), "AGENTSDIR_ROOT": str(root)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done
        return done

    def stop(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.stop()
