"""What one command line left behind, and waiting for what others do; shared by several folders."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import orjson

from agentsdir.cli.command_line import run
from agentsdir.cli.environment import Environment
from agentsdir.cli.output import document_pieces

PATIENCE = 60.0
"""Seconds after which something that should come to pass is taken never to."""


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until `condition` gives something, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it never came to pass: {what}"
        time.sleep(0.01)
    return found


def printed(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document as it is printed, its long texts and lists whole."""
    found: dict[str, Any] = orjson.loads(b"".join(document_pieces(document)))
    return found


def run_here(*arguments: str, variables: Mapping[str, str], cwd: Path) -> Done:
    """Run `agentsdir` in this process, with an empty standard input."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", newline="") for _ in range(2))
    env = Environment(BytesIO(), out, err, variables, cwd, Path(variables["HOME"]), login="me")
    code = run([*arguments], env)
    for stream in (out, err):
        stream.seek(0)
    return Done(int(code), out.read(), err.read())


@dataclass(frozen=True)
class Done:
    """What one command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return stdout as one JSON document."""
        return orjson.loads(self.out)

    @property
    def rows(self) -> list[Any]:
        """Return stdout as JSON Lines."""
        return [orjson.loads(line) for line in self.out.encode().split(b"\n") if line]

    @property
    def error(self) -> Any:
        """Return the last line of stderr as a JSON object."""
        return orjson.loads(self.err.strip().rpartition("\n")[2])
