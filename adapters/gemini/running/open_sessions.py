"""Which sessions are open in a running client: by the ids on command lines.

This client keeps no registry, no lock and no open file. Seen is one that was started with the
session's id (``--resume ID``, ``--session-id ID``) for the same store. Not seen is one that was
started by ``--resume latest`` or a number, or that began or resumed the session from within.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentsdir.adapters import processes
from agentsdir.adapters.gemini.store.locations import storage_in

if TYPE_CHECKING:
    from pathlib import Path

    from agentsdir.adapters.contract import Process

_OPENING = ("--resume", "-r", "--session-id")


def holder(storage: Path, native_id: str) -> Process | None:
    """Return a running client that was started with a session's id; None when none is seen."""
    for process, environment in processes.started_with(_OPENING, native_id):
        its = storage_in(environment)
        if its is None or os.path.realpath(its) == os.path.realpath(storage):
            return process
    return None
