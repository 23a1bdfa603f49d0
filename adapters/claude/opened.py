"""Which sessions of Claude Code are open: the registry of newer clients."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters import processes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.adapters.protocol import Process


# A running client writes ``sessions/<pid>.json``. A killed client leaves it behind, so an entry
# counts only while the process that wrote it runs.

_MAX_ENTRY = 64 * 1024


def open_sessions(storage: Path) -> Iterator[tuple[str, Process]]:
    """Yield the id of each session that a running client has open, and that client."""
    with suppress(OSError):
        for path in sorted((storage / "sessions").glob("*.json")):
            entry = _entry(path)
            native_id, pid = entry.get("sessionId"), entry.get("pid")
            if type(native_id) is not str or type(pid) is not int:
                continue
            found = processes.find(pid)
            if found is not None and str(entry.get("procStart", found.started)) == str(
                found.started
            ):
                yield native_id, found


def _entry(path: Path) -> dict[str, Any]:
    try:
        # O_NONBLOCK: a FIFO in its place must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            value = orjson.loads(stream.read(_MAX_ENTRY))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
