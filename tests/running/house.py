"""One user's home and agents directory, `agentsdir` run there in processes, and what came of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from commands import PATIENCE, Done, until
from counted import COUNTS
from indoors import agentsdir

from agentsdir.adapters import processes
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.layout import Layout

Record = dict[str, Any]
Line = dict[str, Any]


def say(text: str) -> Line:
    """Return a script line: the whole of an answer."""
    block = {"type": "assistant_text", "id": text, "content": text}
    return {"type": "block_complete", "blockId": text, "block": block}


def sleep(seconds: float) -> Line:
    """Return a script line: a pause."""
    return {"type": "sleep", "seconds": seconds}


def fail(kind: str = "provider-failed", message: str = "as the script says") -> Line:
    """Return a script line: the turn fails here."""
    return {"type": "error", "kind": kind, "message": message}


def shell(name: str, command: str) -> Line:
    """Return a script line: an `actor` runs this command."""
    block = {"type": "tool_use", "id": name, "toolUseId": name, "toolName": "shell",
             "input": {"command": command}, "status": "running"}  # fmt: skip
    return {"type": "block_complete", "blockId": name, "block": block}


@dataclass
class House:
    """A home, a working directory, a root, and the test's own adapters on the path."""

    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for place in (self.home, self.work, self.site, self.counts):
            place.mkdir(parents=True)
        self.root.mkdir(mode=0o700)
        shutil.copy(Path(__file__).with_name("counted.py"), self.site)
        info = self.site / "counted-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: counted\nVersion: 1\n")
        entries = "counted = counted:COUNTED\nactor = counted:ACTOR\n"
        (info / "entry_points.txt").write_text(f"[agentsdir.adapters]\n{entries}")

    home = property(lambda self: self.folder / "home")
    work = property(lambda self: self.folder / "work")
    site = property(lambda self: self.folder / "site")
    counts = property(lambda self: self.folder / "counts")
    root = property(lambda self: self.folder / "root")
    config = property(lambda self: self.home / ".config" / "agentsdir")

    @property
    def environment(self) -> dict[str, str]:
        """Return the whole environment of the user's shell."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "USER": "me",
            "PYTHONPATH": str(self.site),
            "AGENTSDIR_ROOT": str(self.root),
            "AGENTSDIR_PROVIDER": "echo",
            COUNTS: str(self.counts),
        }

    def settle(self, **settings: Any) -> None:
        """Write settings.toml; durability is no concern of these tests."""
        said = {"durability": "never", **settings}
        lines = [f"{name} = {orjson.dumps(value).decode()}\n" for name, value in said.items()]
        path = self.root / "settings.toml"
        path.write_text("".join(lines))
        path.chmod(0o600)

    def hook(self, name: str, script: str) -> None:
        """Put an executable of the user's where agentsdir looks for it."""
        path = self.config / "hooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)

    def script(self, name: str, *turns: Iterable[Line]) -> str:
        """Write a script; one turn is played for every prompt. Return the option that names it."""
        path = self.work / f"{name}.jsonl"
        lines: list[Line] = []
        for turn in turns:
            lines += [{"type": "turn"}, *turn] if len(turns) > 1 else turn
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        return f"file={path}"

    def do(self, *arguments: str) -> Done:
        """Run a command in this process, which is quicker; for what no other process is to see."""
        return Done(*agentsdir(*arguments, variables=self.environment))

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start `agentsdir` in a process of its own."""
        one = subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            env={**self.environment, **variables},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # A shell starts its background jobs, such as a test run, with SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.started.append(one)
        return one

    def end(self, started: subprocess.Popen[str]) -> Done:
        """Wait for a started command."""
        out, err = started.communicate(timeout=PATIENCE)
        return Done(started.returncode, out, err)

    def __call__(self, *arguments: str, **variables: str) -> Done:
        """Run `agentsdir`."""
        return self.end(self.start(*arguments, **variables))

    def ok(self, *arguments: str, **variables: str) -> str:
        """Run a command that must succeed without a word on stderr; return what it printed."""
        done = self(*arguments, **variables)
        assert (done.code, done.err) == (0, ""), (arguments, done)
        return done.out.removesuffix("\n")

    def new(self, name: str, provider: str, *turns: Iterable[Line], options: Any = ()) -> str:
        """Make an agent of that name; `turns` are its script's, if there are any."""
        played = ["-o", self.script(name, *turns)] if turns else []
        done = self.do("new", "--name", name, "--provider", provider, *played, *options)
        assert (done.code, done.err) == (0, ""), done
        return done.out.strip()

    def folder_of(self, agent: str) -> Path:
        """Return an agent's folder."""
        return self.root / "agents" / agent

    def log(self, agent: str) -> list[Record]:
        """Return the records of an agent's log; a last line without its end is not there yet."""
        data = (self.folder_of(agent) / "events.jsonl").read_bytes()
        return [orjson.loads(line) for line in data.split(b"\n")[:-1]]

    def logs(self) -> dict[str, list[Record]]:
        """Return the log of every agent."""
        return {path.parent.name: self.log(path.parent.name)
                for path in sorted(self.root.glob("agents/[!.]*/events.jsonl"))}  # fmt: skip

    def waiting(self) -> list[str]:
        """Return the agents that have messages which no turn ran."""
        layout = Layout(self.root)
        agents = map(layout.agent, layout.agent_ids())
        return [paths.id for paths in agents if read_agent(paths).state.pending]

    def run_what_waits(self) -> None:
        """Run an inbox after another until no message waits."""
        for _ in range(50):
            if not (waiting := self.waiting()):
                return
            self("send", "--no-message", waiting[0])
        raise AssertionError(f"these have messages for ever: {waiting}")

    def of(self, agent: str, event: str) -> list[Record]:
        """Return the data of an agent's events of one kind."""
        return [record["data"] for record in self.log(agent) if record["event"] == event]

    def said(self, agent: str) -> list[str]:
        """Return every answer in an agent's log."""
        blocks = [data["block"] for data in self.of(agent, "block")]
        return [block["content"] for block in blocks if block["type"] == "assistant_text"]

    def asked(self, agent: str) -> list[str]:
        """Return the text of every message, in order."""
        return ["".join(part.get("text", "") for part in data["content"])
                for data in self.of(agent, "message.enqueued")]  # fmt: skip

    def wait_for(self, agent: str, event: str, count: int = 1) -> Record:
        """Wait until an agent's log has so many events of a kind; return the last one's data."""
        found = until(
            lambda: (seen := self.of(agent, event)) and len(seen) >= count and seen,
            f"{event} {count} times",
        )
        return found[count - 1]

    def wait_said(self, agent: str, text: str) -> None:
        """Wait until an answer is in an agent's log."""
        until(lambda: text in self.said(agent), f"that it says {text!r}")

    def running(self) -> list[processes.Process]:
        """Return what runs of anything started here."""
        return list(processes.marked({COUNTS: str(self.counts)}))

    def quiet(self) -> None:
        """Wait until nothing runs any more, detached or not."""
        until(lambda: not self.running(), "that nothing runs")

    def most_at_once(self) -> int:
        """Return how many turns were at work at the same time, by the provider's own count."""
        tally = self.counts / "tally"
        return max(map(int, tally.read_text().split())) if tally.exists() else 0

    def sweep(self) -> None:
        """End whatever the tested code left."""
        for left in self.running():
            os.kill(left.pid, signal.SIGKILL)
        for one in self.started:
            one.kill()
            one.communicate(timeout=PATIENCE)
