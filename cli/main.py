"""The entry point: find the command, run it, turn what it raises into an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys

from agentsdir.formats.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def main() -> NoReturn:
    """Run the command line of this process."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        # Asked by every installer and prompt: answered before anything heavy is imported.
        try:
            os.write(1, f"agentsdir {VERSION}\n".encode())
        except OSError:
            os._exit(1)
        os._exit(0)
    # Importing makes tens of thousands of objects that live to the end: nothing to collect.
    gc.set_threshold(100_000)
    try:
        from agentsdir.cli.environment import Environment
        from agentsdir.cli.invocation import run

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
                signal.signal(number, _terminated)
        code = run(sys.argv[1:], Environment.of_process())
    except KeyboardInterrupt:  # before the command began, or after it was over
        code = 128 + signal.SIGINT
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    _leave(code)


def _terminated(number: int, _frame: Any) -> NoReturn:
    raise SystemExit(128 + number)


def _leave(code: int) -> NoReturn:
    """Exit at once: tearing down the interpreter takes longer than most commands."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):
            continue  # the reader is gone; `run` has already turned that into the code
    os._exit(code)


if __name__ == "__main__":
    main()
