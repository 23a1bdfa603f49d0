"""The entry point: it handles signals while the program starts, and exits with the code."""

from __future__ import annotations

import os
import sys


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """End without a traceback when Ctrl-C comes while this module is imported."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)
    sys.__excepthook__(kind, error, trace)


# Python has loaded `os` and `sys` already. Everything else takes time, in which Ctrl-C may come.
sys.excepthook = _uncaught

import gc  # noqa: E402
import signal  # noqa: E402
from typing import TYPE_CHECKING, Any, NoReturn  # noqa: E402

from agentsdir.formats.errors import Terminated  # noqa: E402

if TYPE_CHECKING:
    from types import TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> NoReturn:
    """Run the command line of this process."""
    # Imports make tens of thousands of objects that are never freed, so collecting is wasted.
    gc.set_threshold(100_000)
    try:
        # A signal in the middle of an import can find a library half made, and crash in it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        from agentsdir.cli.command_line import run
        from agentsdir.cli.environment import Environment

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
                signal.signal(number, _raise_terminated)
        environment = Environment.of_process()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        code = run(sys.argv[1:], environment)
    except KeyboardInterrupt:  # before the command starts, or after it has ended
        code = 128 + signal.SIGINT
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except (ImportError, MemoryError) as error:  # even the error output cannot be loaded
        why = str(error) or "there is not enough memory"
        _write_stderr(f"agentsdir: a part of the program cannot be loaded: {why}\n")
        code = 1
    _exit(code)


def _write_stderr(text: str) -> None:
    try:
        os.write(2, text.encode(errors="replace"))
    except OSError:
        return  # stderr is closed


def _raise_terminated(number: int, _frame: Any) -> NoReturn:
    raise Terminated(128 + number)


def _exit(code: int) -> NoReturn:
    """Exit at once: tearing down the interpreter takes longer than most commands."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # the exit code is final
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, AttributeError):
            continue  # the reader is gone; `run` has already turned that into the code
    os._exit(code)


if __name__ == "__main__":
    main()
