"""What one command line left behind, and waiting for what others do; shared by several folders."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

PATIENCE = 60.0
"""Seconds after which something that should come to pass is taken never to."""


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until `condition` gives something, and return it."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it never came to pass: {what}"
        time.sleep(0.01)
    return found


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
