"""Runs the program under an audit hook that ends it at the first forbidden event.

    python -P guarded_main.py BASE VERB...

Forbidden: sockets, other programs, new processes, and code or modules from anywhere below BASE.
"""

from __future__ import annotations

import os
import sys
from types import CodeType
from typing import Any

BASE = sys.argv[1]
PROCESSES = ("subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "pty.")
NETWORK = ("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser.")
SUFFIXES = (".py", ".pyc", ".so", ".pth", ".zip", ".egg")


def _is_below(value: Any) -> bool:
    return isinstance(value, str) and os.path.realpath(value).startswith(BASE)


def _is_forbidden(event: str, arguments: tuple[Any, ...]) -> bool:
    if event.startswith((*PROCESSES, *NETWORK)):
        return event != "socket.gethostname"
    if event == "open":
        # Imports open by name and mode; data is opened by descriptor, and may be called anything.
        is_import = arguments[1] is not None and _is_below(arguments[0])
        return is_import and arguments[0].endswith(SUFFIXES)
    if event == "exec":
        code = arguments[0]
        # Classes that are made at run time come from `<string>`, which is no file.
        return (
            isinstance(code, CodeType)
            and code.co_filename[0] != "<"
            and _is_below(code.co_filename)
        )
    if event == "import":
        return _is_below(arguments[1])
    return event == "ctypes.dlopen" and _is_below(arguments[0])


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if _is_forbidden(event, arguments):
        os.write(2, f"FORBIDDEN {event} {arguments!r}\n".encode())
        os._exit(97)


sys.addaudithook(_guard)
sys.argv = ["agentsdir", *sys.argv[2:]]

from agentsdir.cli.main import main  # noqa: E402, the hook must see its imports

main()
