"""One user with a real client, a fake API behind it, and `agentsdir` run as they would run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import termios
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import orjson
from commands import PATIENCE, Done, run_here
from consoles import screen
from fake_api import FakeApi
from typist import Typist

from agentsdir.adapters import processes

COMPARED = ("id", "type", "content", "toolUseId", "toolName", "input", "output", "conversationId",
            "link", "durationMs")  # fmt: skip


NODE = os.environ.get("AGENTSDIR_TEST_NODE", "")
"""The folder of a Node.js that keeps what it compiles, if clients are to run on it."""

A = TypeVar("A", bound=FakeApi[Any])


@dataclass
class Desk(ABC, Generic[A]):
    """A home, a working directory, a root, and the client that config.toml names."""

    provider: ClassVar[str]
    quiet_client: ClassVar[dict[str, str]]
    """Variables that keep the client to itself, and quick."""
    address: ClassVar[str]
    """The variable that names the API's address."""

    folder: Path
    client: Path
    api: A
    settings: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    shell: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for place in (self.home, self.work, self.temporary):
            place.mkdir(parents=True)
        (self.work / "note.txt").write_text("hello from the note\n")
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Set up what the client needs to run without a person."""

    home = property(lambda self: self.folder / "home")
    work = property(lambda self: self.folder / "work")
    root = property(lambda self: self.folder / "root")
    temporary = property(lambda self: self.folder / "tmp")
    config = property(lambda self: self.home / ".config" / "agentsdir")

    @property
    def _client_environment(self) -> dict[str, str]:
        return {**self.quiet_client, self.address: self.api.url, **self.variables}

    def configure(self, **settings: str) -> None:
        """Write config.toml anew, with these settings of the provider."""
        said = {"command": str(self.client), **self.settings, **settings}
        self.config.mkdir(parents=True, exist_ok=True)
        table = f"providers.{self.provider}"
        variables = self._client_environment
        if NODE:  # for turns of agentsdir's; by hand, the client runs on what the system has
            variables["PATH"] = f"{NODE}:{self.environment['PATH']}"
            variables["NODE_COMPILE_CACHE"] = str(Path(NODE).parent / "compiled")
        lines = [f"[{table}]", *_table(said), f"[{table}.env]", *_table(variables)]
        path = self.config / "config.toml"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)

    def hook(self, name: str, script: str) -> None:
        """Put an executable of the user's where agentsdir looks for it."""
        path = self.config / "hooks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)

    @property
    def environment(self) -> dict[str, str]:
        """Return the whole environment of the user's shell."""
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TMPDIR": str(self.temporary),
            "AGENTSDIR_ROOT": str(self.root),
            "AGENTSDIR_PROVIDER": "echo",
            **self.shell,
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `agentsdir` in a process of its own."""
        one = subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A shell starts its background jobs, such as a test run, with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.started.append(one)
        return one

    def kill(self, started: subprocess.Popen[bytes]) -> None:
        """Kill a started command without warning."""
        started.kill()
        started.communicate(timeout=PATIENCE)

    def end(self, started: subprocess.Popen[bytes]) -> Done:
        """Wait for a started command."""
        out, err = started.communicate(timeout=PATIENCE)
        return Done(started.returncode, out.decode(), (err or b"").decode())

    def __call__(self, *arguments: str) -> Done:
        """Run `agentsdir`: `send`, which runs a client, in a process of its own."""
        if arguments[0] == "send":
            return self.end(self.start(*arguments))
        return run_here(*arguments, variables=self.environment, cwd=self.work)

    def ok(self, *arguments: str) -> Done:
        """Run a command that must succeed without a word on stderr."""
        done = self(*arguments)
        assert (done.code, done.err) == (0, ""), done
        return done

    def new(self, *arguments: str) -> str:
        """Create an agent whose turns the real client runs."""
        return self.ok("new", "--provider", self.provider, *arguments).out.strip()

    @abstractmethod
    def by_hand_command(self, native: str, prompt: str, *, fresh: bool) -> list[str]:
        """Return how the client's user begins or resumes a session with a prompt."""

    def open_by_hand(
        self, native: str, prompt: str, *, fresh: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a turn in the client itself, as its user would, without agentsdir."""
        one = subprocess.Popen(
            [self.client, *self.by_hand_command(native, prompt, fresh=fresh)],
            env={**self.environment, **self._client_environment},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.started.append(one)
        return one

    def close_by_hand(self, one: subprocess.Popen[bytes]) -> None:
        """Kill a client that was started by hand, and the one that it may have started itself."""
        os.killpg(one.pid, signal.SIGKILL)
        one.communicate(timeout=PATIENCE)

    def by_hand(self, native: str, prompt: str, *, fresh: bool = False) -> str:
        """Run such a turn to its end, and return what the client printed."""
        done = self.end(self.open_by_hand(native, prompt, fresh=fresh))
        assert done.code == 0, done
        return done.out

    @property
    def words(self) -> dict[str, Any]:
        """What the plans of this client's model are to be told."""
        return {}

    def ask(self, plan: str, **given: Any) -> str:
        """Return a prompt that has the model follow a plan."""
        words = "".join(f" {name}={value}" for name, value in given.items())
        return f"Please: [[{plan}{words}]]"

    def send(self, agent: str, plan: str, *options: str) -> Done:
        """Send a prompt that has the model follow a plan in the working directory."""
        return self("send", *options, agent, self.ask(plan, **self.words))

    def begin(self, agent: str, plan: str, *options: str) -> subprocess.Popen[bytes]:
        """Start such a turn."""
        return self.start("send", *options, agent, self.ask(plan, **self.words))

    def begin_here(self, agent: str, plan: str, *options: str) -> Future[Done]:
        """Start such a turn in a thread of this process, as a program that has many does."""
        done: Future[Done] = Future()
        command = ("send", *options, agent, self.ask(plan, **self.words))

        def run() -> None:
            done.set_result(run_here(*command, variables=self.environment, cwd=self.work))

        threading.Thread(target=run, daemon=True).start()
        return done

    def watched(self, agent: str, plan: str) -> list[str]:
        """Send such a prompt at a terminal, and return the lines that it shows in the end."""
        with Typist() as person:
            termios.tcsetwinsize(person.slave, (24, 200))
            done = subprocess.run(
                [sys.executable, "-m", "agentsdir.cli.main", "send", agent,
                 self.ask(plan, **self.words)],
                env={**self.environment, "TERM": "xterm"},
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=person.slave,
                stderr=person.slave,
                timeout=PATIENCE,
                check=False,
            )  # fmt: skip
        assert done.returncode == 0, person.shown
        return screen(person.shown)

    def log(self, agent: str) -> list[dict[str, Any]]:
        """Return the events of an agent's log."""
        data = (self.root / "agents" / agent / "events.jsonl").read_bytes()
        return [orjson.loads(line) for line in data.split(b"\n") if line]

    def of(self, agent: str, event: str) -> list[Any]:
        """Return the data of an agent's events of one kind."""
        return [one["data"] for one in self.log(agent) if one["event"] == event]

    def blocks(self, agent: str) -> dict[str, dict[str, Any]]:
        """Return the blocks of a log by id, the last word on each."""
        found = [one["block"] for one in self.of(agent, "block")]
        return {block["id"]: block for block in found}

    def types(self, agent: str) -> list[str]:
        """Return the types of a log's blocks, in the order in which they were first logged."""
        return [block["type"] for block in self.blocks(agent).values()]

    def said(self, agent: str, kind: str = "assistant_text") -> list[str]:
        """Return what the blocks of one type say, but for those that were given up."""
        blocks = [b for b in self.blocks(agent).values() if not b.get("superseded")]
        return [block["content"] for block in blocks if block["type"] == kind]

    def native(self, agent: str) -> str:
        """Return the id by which the client knows an agent."""
        state = orjson.loads((self.root / "agents" / agent / "state.json").read_bytes())
        return str(state["native"]["id"])

    def listed_client(self, agent: str) -> int | None:
        """Return the process in which `list --native` sees an agent's session open; None for none.

        The list must say that the session is the agent's.
        """
        rows = self.ok("list", "--native").rows
        (row,) = [row for row in rows if row["id"] == self.native(agent)]
        assert row["agentId"] == agent
        return row["process"]["pid"] if row["process"] else None

    @abstractmethod
    def native_files(self, native: str) -> dict[str, bytes]:
        """Return what the client has of a session, by path in its project's folder."""

    @abstractmethod
    def stored_files(self, agent: str) -> dict[str, bytes]:
        """Return the same of what the agent's folder has."""

    @abstractmethod
    def stored_transcripts(self, agent: str) -> list[Path]:
        """Return the stored files that have the blocks of the session in force, the main first."""

    def running(self) -> list[processes.Process]:
        """Return what still runs of anything started here."""
        return list(processes.marked({"AGENTSDIR_ROOT": str(self.root)}))

    def client_of(self, started: subprocess.Popen[bytes]) -> processes.Process:
        """Return the client that a started `send` runs."""
        (client,) = [one for one in self.running() if _parent(one.pid) == started.pid]
        return client

    def quiet(self) -> None:
        """Hold the machine to it that nothing runs on after a turn."""
        left = [_command(one.pid) for one in self.running()]
        assert left == []

    def sound(self, agent: str) -> None:
        """Hold an agent to what is true after every turn.

        Nothing runs, the folder is valid, its transcripts are the client's own byte for byte, the
        log has the blocks that they have, runtime data those that the log has, and the log names no
        place in the client's store.
        """
        self.quiet()
        checked = self("validate", "--modes", "--json", str(self.root))
        found = [one["id"] for one in checked.rows if not _is_remark_on_stream(one)]
        assert (checked.code, found) == (0, []), checked
        native = self.native_files(self.native(agent))
        stored = self.stored_files(agent)
        assert {name: stored.get(name) for name in native} == native
        parsed = self.parsed(agent)
        logged = self.blocks(agent)
        assert {i: _compared(logged.get(i, {})) for i in parsed} == {
            i: _compared(block) for i, block in parsed.items()
        }
        assert {repr(block["source"]) for block in logged.values()} <= {"None"}
        self.runs_on_its_log(agent)

    def runs_on_its_log(self, agent: str) -> None:
        """Hold runtime data to the blocks that history.jsonl has after its last marker."""
        history = (self.root / "agents" / agent / "history.jsonl").read_bytes().splitlines()
        logged: set[str] = set()
        for entry in map(orjson.loads, history):
            logged = set() if entry["type"] in ("start", "reset") else logged | {entry["id"]}
        data = orjson.loads(self.ok("inspect", agent, "--runtime").out)
        threads = [one for one in data["subagents"] if f"spawn:{one['id']}" not in logged]
        shown = [block["id"] for one in [data, *threads] for block in one["blocks"]]
        assert (set(shown), len(shown)) == (logged, len(logged))

    def parsed(self, agent: str) -> dict[str, dict[str, Any]]:
        """Return the blocks that the stored transcripts have, by id."""
        done = self("parse", "--view", "all", *map(str, self.stored_transcripts(agent)))
        assert done.code == 0, done
        return {block["id"]: block for block in done.rows}

    def sweep(self) -> None:
        """End whatever the tested code left."""
        for left in self.running():
            os.kill(left.pid, signal.SIGKILL)
        for one in self.started:
            one.kill()
            for pipe in (one.stdout, one.stderr):
                if pipe is not None:
                    pipe.close()
            one.wait(PATIENCE)


def _table(values: dict[str, str]) -> list[str]:
    return [f"{name} = {orjson.dumps(value).decode()}" for name, value in values.items()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_remark_on_stream(problem: dict[str, Any]) -> bool:
    """Tell whether it is about what a crash left of a stream, which the log need not name."""
    return problem["id"] == "transcript-unlisted" and problem["file"].endswith(".stream")


def _compared(block: dict[str, Any]) -> dict[str, Any]:
    return {name: block.get(name) for name in COMPARED}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "gone by now"
