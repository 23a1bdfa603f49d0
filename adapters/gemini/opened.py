"""Which sessions of Gemini CLI are open: ids on the command lines of running clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from agentsdir.adapters import processes
from agentsdir.adapters.gemini.projects import storage_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentsdir.adapters.protocol import Process


# This client keeps no registry, no lock and no open file. A client is found if it was started with
# the session's id (``--resume ID``, ``--session-id ID``) for the same store. It is not found if it
# was started by ``--resume latest`` or a number, or began or resumed the session from within.

_OPENING = ("--resume", "-r", "--session-id")


def open_sessions(storage: Path) -> Iterator[tuple[str, Process]]:
    """Yield ids with which clients were started that still run, and these clients."""
    real = os.path.realpath(storage)
    for value, process, environment in processes.option_values(_OPENING):
        its = storage_in(environment)
        if its is None or os.path.realpath(its) == real:
            yield value, process
