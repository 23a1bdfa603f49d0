"""A place to run commands in, and to break what they left: for the tests of diagnostics."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import orjson

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment
from agentsdir.engine.replay import replay
from agentsdir.formats.findings import Finding
from agentsdir.formats.store.layout import AgentPaths


class Bench:
    """One folder with an agents directory in it, and the command line on it, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run one command; return its exit code, stdout and stderr."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
        variables = {"AGENTSDIR_ROOT": str(self.root), "AGENTSDIR_PROVIDER": "echo"}
        stdin = io.BytesIO()
        env = Environment(stdin, out, err, variables, self.folder, self.folder, login="me")
        code = int(run(list(arguments), env))
        for stream in (out, err):
            stream.seek(0)
        return code, out.read(), err.read()

    def agent(self, *, turns: int = 1) -> Path:
        """Make an agent that has talked, and is suspended; return its folder."""
        code, out, _ = self.run("new")
        assert code == 0
        for _ in range(turns):
            assert self.run("send", out.strip(), "hello")[0] == 0
        if turns:
            assert self.run("suspend", out.strip())[0] == 0
        return self.root / "agents" / out.strip()

    def write(self, name: str, data: bytes) -> str:
        """Write a file beside the agents directory; return its name."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return name

    def validate(self, *operands: str) -> list[dict[str, Any]]:
        """Return what `validate` finds; without an operand, in the agents directory."""
        _, out, _ = self.run("validate", "--json", *operands)
        return _remarks([orjson.loads(line) for line in out.splitlines()])

    def restore(self) -> list[dict[str, Any]]:
        """Return what `restore` would find, having read all of every log; nothing is written."""
        _, out, _ = self.run("restore", "--dry-run", "--json")
        return _remarks([orjson.loads(line) for line in out.splitlines()])

    def inspect(self, agent: Path) -> list[dict[str, Any]]:
        """Return what `inspect` finds in the part of the log that it reads."""
        return _remarks(orjson.loads(self.run("inspect", agent.name, "--json")[1]))

    def replay(self, agent: Path) -> list[dict[str, Any]]:
        """Return what is found on the way when recorded streams are played."""
        found: list[Finding] = []
        list(replay(AgentPaths(agent, agent.name), found.append, streams=True))
        return [finding.as_json() for finding in found]

    def parse(self, *operands: str) -> list[dict[str, Any]]:
        """Return what `parse` finds."""
        self.run("parse", "--report", "report.json", *operands)
        return _remarks(orjson.loads((self.folder / "report.json").read_bytes()))


def _remarks(value: Any) -> list[dict[str, Any]]:
    """Return every finding or problem, wherever it stands in a command's JSON output."""
    if isinstance(value, list):
        return [found for item in value for found in _remarks(item)]
    if not isinstance(value, dict):
        return []
    if {"id", "severity", "file", "line", "offset"} <= value.keys():
        return [value]
    return [found for item in value.values() for found in _remarks(item)]


def change(path: Path, old: bytes, new: bytes) -> None:
    """Replace bytes of a file, which must be there."""
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def lines(agent: Path) -> list[bytes]:
    """Return the lines of an agent's log, each with its LF."""
    return (agent / "events.jsonl").read_bytes().splitlines(keepends=True)


def put(agent: Path, *log: bytes) -> None:
    """Write an agent's log, in which state.json has read nothing yet."""
    (agent / "events.jsonl").write_bytes(b"".join(log))
    (agent / "state.json").unlink(missing_ok=True)


def sparse(path: Path, size: int) -> None:
    """Make a file longer without writing it."""
    with path.open("ab") as stream:
        stream.write(b"x")
        os.ftruncate(stream.fileno(), size)
