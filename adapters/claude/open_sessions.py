"""Which sessions are open in a running client: the registry that newer ones keep.

A client writes ``sessions/<pid>.json`` while it lives, and leaves it behind when it is killed; so
an entry counts only while its process is the one that wrote it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters import processes

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.adapters.contract import Process

_MAX_ENTRY = 64 * 1024


def holder(storage: Path, native_id: str) -> Process | None:
    """Return the running client that has a session open, None when none says so."""
    with suppress(OSError):
        for path in sorted((storage / "sessions").glob("*.json")):
            entry = _entry(path)
            if entry.get("sessionId") != native_id or type(entry.get("pid")) is not int:
                continue
            found = processes.find(entry["pid"])
            if found is not None and str(entry.get("procStart", found.started)) == str(
                found.started
            ):
                return found
    return None


def _entry(path: Path) -> dict[str, Any]:
    try:
        # O_NONBLOCK: whatever else stands there must not hang us.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            value = orjson.loads(stream.read(_MAX_ENTRY))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
