"""The command line for fault tests: in this process where that will do, else in one of its own."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment
from agentsdir.engine.lookup import find_agent
from agentsdir.formats.errors import AgentsdirError
from agentsdir.formats.store.layout import Layout

PROGRAM = (sys.executable, "-m", "agentsdir.cli.main")


class Done(NamedTuple):
    """What one command left."""

    code: int
    out: str
    err: str

    @property
    def quiet(self) -> bool:
        """Whether it said at most one line on stderr, and that no traceback."""
        return self.err.count("\n") <= 1 and "Traceback" not in self.err


@dataclass(frozen=True)
class Console:
    """Runs commands on one agents directory."""

    root: Path
    cwd: Path

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        """Run one command in this process."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        variables = {"AGENTSDIR_ROOT": str(self.root), "AGENTSDIR_PROVIDER": "echo"}
        source = io.BytesIO(stdin.encode())
        env = Environment(source, out, err, variables, self.cwd, self.cwd, login="me")
        code = run(list(arguments), env)
        return Done(int(code), _text(out), _text(err))

    def ok(self, *arguments: str, stdin: str = "") -> str:
        """Run one command that must succeed without a word on stderr; return its output."""
        done = self(*arguments, stdin=stdin)
        assert (done.code, done.err) == (0, ""), (arguments, done)
        return done.out

    def new(self, *arguments: str) -> str:
        """Create an agent and return its id."""
        return self.ok("new", *arguments).strip()

    def folder(self, agent: str) -> Path:
        """Return an agent's folder."""
        return self.root / "agents" / agent

    def log(self, agent: str) -> Path:
        """Return an agent's log."""
        return self.folder(agent) / "events.jsonl"

    def replayed(self, agent: str) -> list[str]:
        """Return what a replay shows of the texts said, each a prompt or an answer, in order."""
        texts = []
        for line in self("replay", "--events", agent).out.splitlines():
            block = orjson.loads(line).get("block", {})
            content = block.get("content")
            if isinstance(content, list):
                content = "".join(part.get("text", "") for part in content)
            if content:
                texts.append(content)
        return texts

    def problems(self) -> list[str]:
        """Return what `validate` holds against the whole directory, remarks left out."""
        done = self("validate", "--json")
        assert "Traceback" not in done.err, done.err
        found = [orjson.loads(line) for line in done.out.splitlines()]
        bad = [f"{one['file']}: {one['id']}" for one in found if one["severity"] != "info"]
        assert (done.code == 0) == (not bad), done
        return bad

    def start(self, *arguments: str, before: tuple[str, ...] = (), **options: Any) -> Any:
        """Start one command in a process of its own; `before` is a command that runs it."""
        return subprocess.Popen(
            [*before, *PROGRAM, *arguments],
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "env": self.environment(),
                "cwd": self.cwd,
                # A shell starts its background jobs, a whole test run too, with SIGINT ignored.
                "preexec_fn": _usual_signals,
                **options,
            },
        )

    def process(self, *arguments: str, before: tuple[str, ...] = (), **options: Any) -> Done:
        """Run one command in a process of its own; output goes through pipes, not files."""
        with self.start(*arguments, before=before, **options) as process:
            try:
                out, err = process.communicate(timeout=120)
            finally:
                process.kill()
        return Done(process.returncode, out or "", err or "")

    def environment(self) -> dict[str, str]:
        """Return the variables of a process."""
        inherited = {name: os.environ[name] for name in os.environ if name[:6] != "PYTHON"}
        return {
            **inherited,
            "HOME": str(self.cwd),
            "AGENTSDIR_ROOT": str(self.root),
            "AGENTSDIR_PROVIDER": "echo",
            "PYTHONDONTWRITEBYTECODE": "1",
        }


def _usual_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode()


def found(root: Path, references: list[str], *, with_index: bool = True) -> dict[str, str]:
    """Return which agent each reference means, or the kind of the error."""
    layout, away = Layout(root), root / "away"
    if not with_index:
        layout.index.rename(away)
    try:
        return {reference: _found(layout, reference) for reference in references}
    finally:
        if not with_index:
            away.rename(layout.index)


def _found(layout: Layout, reference: str) -> str:
    try:
        return find_agent(layout, reference).id
    except AgentsdirError as error:
        return error.kind


def tree(root: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Return every entry below `root`: its mode, its times of change, and its bytes."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        data = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ctime_ns, data)
    return found
