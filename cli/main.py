"""The entry point: find the command, run it, turn what it raises into an exit code."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

from agentsdir.formats.version import VERSION


def main() -> NoReturn:
    """Run the command line of this process."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        # Asked by every installer and prompt: answered before anything heavy is imported.
        sys.stdout.write(f"agentsdir {VERSION}\n")
        sys.exit(0)
    from agentsdir.cli.environment import Environment
    from agentsdir.cli.invocation import run

    signal.signal(signal.SIGTERM, _terminated)
    _leave(run(sys.argv[1:], Environment.of_process()))


def _terminated(_number: int, _frame: Any) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


def _leave(code: int) -> NoReturn:
    """Exit without the interpreter's own complaint about a stdout that is gone."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
