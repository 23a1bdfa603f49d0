"""Shared by the tests of `cli`: the command line in this process, with streams of our own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import commands
import orjson
import pytest
from declared_fields import undeclared_in

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment

SCRIPTS = Path(__file__).parents[2] / "fixtures" / "script"


class Stream(io.TextIOWrapper):
    """A standard stream that keeps what is written, and may say that it is a terminal."""

    def __init__(self, *, tty: bool) -> None:
        self._kept = io.BytesIO()
        super().__init__(self._kept, encoding="utf-8", errors="backslashreplace", newline="")
        self._tty = tty

    def isatty(self) -> bool:
        """Say what the test wants."""
        return self._tty

    @property
    def text(self) -> str:
        """Return all that was written."""
        self.flush()
        return self._kept.getvalue().decode()


class Input(io.BytesIO):
    """Standard input that may say that it is a terminal."""

    tty = False

    def isatty(self) -> bool:
        """Say what the test wants."""
        return self.tty


class Done(commands.Done):
    """What one command left in this process."""

    @property
    def documents(self) -> list[Any]:
        """Return what stands on stdout as JSON: one document, or one a line; else nothing."""
        for read in (lambda: [self.json], lambda: self.rows):
            with suppress(orjson.JSONDecodeError):
                return read()
        return []

    @property
    def error(self) -> Any:
        """Return all of stderr as one JSON object."""
        return orjson.loads(self.err)


@dataclass
class Shell:
    """One user's command line."""

    home: Path
    cwd: Path
    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    uid: int = field(default_factory=os.geteuid)
    terminal: Path = Path("/nowhere/tty")

    def __call__(
        self,
        *arguments: str,
        stdin: bytes | BinaryIO = b"",
        tty: bool = False,
        stdin_tty: bool = False,
    ) -> Done:
        """Run one command in this process; `stdin` is what it reads, or a stream of the system."""
        out, err = Stream(tty=tty), Stream(tty=tty)
        source: BinaryIO
        if isinstance(stdin, bytes):
            source = Input(stdin)
            source.tty = stdin_tty
        else:
            source = stdin
        variables = {
            "AGENTSDIR_ROOT": str(self.root),
            "AGENTSDIR_PROVIDER": "echo",
            **self.variables,
        }
        env = Environment(source, out, err, variables, self.cwd, self.home, login="me")
        env.uid = self.uid
        env.terminal = self.terminal
        code = run(list(arguments), env)
        done = Done(int(code), out.text, err.text)
        assert undeclared_in(done.documents) == [], arguments
        return done

    def ok(self, *arguments: str, **options: Any) -> Done:
        """Run one command that must succeed without a word on stderr."""
        done = self(*arguments, **options)
        assert (done.code, done.err) == (0, ""), done
        return done

    def new(self, *arguments: str) -> str:
        """Create an agent and return its id."""
        return self.ok("new", *arguments).out.strip()

    def script(self, name: str, *arguments: str) -> str:
        """Create an agent that plays a script fixture, or a file given by its path."""
        option = f"file={SCRIPTS / name}"
        return self.new("--provider", "script", "--option", option, *arguments)

    def folder(self, agent: str) -> Path:
        """Return an agent's folder."""
        return self.root / "agents" / agent

    def log(self, agent: str) -> list[dict[str, Any]]:
        """Return the records of an agent's log."""
        data = (self.folder(agent) / "events.jsonl").read_bytes()
        return [orjson.loads(line) for line in data.split(b"\n") if line]

    def transcript(self, agent: str) -> Path:
        """Return an agent's one stored transcript."""
        (path,) = (self.folder(agent) / "transcripts").glob("*.jsonl")
        return path

    def process(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run one command in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            env=self.environment(),
            cwd=self.cwd,
            text=True,
            timeout=60,
            check=False,
            **{"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, **options},
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin one command in a process of its own; what it says is to be fetched."""
        return subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            env=self.environment(),
            cwd=self.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def sh(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run one line of shell in which `agentsdir` is this program."""
        return subprocess.run(
            [
                "bash",
                "-c",
                f'agentsdir() {{ "{sys.executable}" -m agentsdir.cli.main "$@"; }}; {line}',
            ],
            env=self.environment(),
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables of a process."""
        return {**os.environ, "HOME": str(self.home), "AGENTSDIR_ROOT": str(self.root)}

    def tree(self) -> dict[str, tuple[int, bytes]]:
        """Return every file of home, root and working directory with its time and bytes."""
        return {
            str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in sorted(self.home.parent.rglob("*"))
        }


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Return a command line with a home, a working directory and a root of its own."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return Shell(tmp_path / "home", tmp_path / "work", tmp_path / "root")
