"""Running an agent's message in a process of its own: this program again (decision D19)."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import Popen

    from agentsdir.cli.environment import Environment
    from agentsdir.formats.store.layout import AgentPaths

# What a turn's program is told of the turn: what is started here belongs to none.
MARKS = ("AGENTSDIR_AGENT", "AGENTSDIR_TURN")


def start_turn(
    env: Environment, paths: AgentPaths, message_id: str, *, alone: bool
) -> StartedProcess:
    """Start a process of this program that runs an agent's message. Raises `OSError`.

    Args:
        alone: the caller waits for it, and looks after what follows; else it outlives this process,
            its terminal, and whatever is said to both.
    """
    program = "from agentsdir.cli.main import main; main()"
    root = paths.folder.parent.parent
    given = ["--root", str(root.resolve()), "send", paths.id, "--no-message"]
    given += ["--message-id", message_id, "--wait", "-1", *(["--alone"] if alone else [])]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if alone else subprocess.DEVNULL,
        env={k: v for k, v in env.variables.items() if k not in MARKS},
        start_new_session=not alone,
    )
    return StartedProcess(process)


class StartedProcess:
    """One process that was started."""

    def __init__(self, process: Popen[bytes]) -> None:
        self._process = process

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        return self._process.wait()

    def interrupt(self) -> None:
        """Have it end its turn."""
        with suppress(ProcessLookupError):
            # Not SIGINT: what a shell runs in the background, and all it starts, has that ignored.
            self._process.send_signal(signal.SIGTERM)
