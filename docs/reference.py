"""Writes reference.md, the help of every command: `python docs/reference.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agentsdir.cli.command_line import GROUPS

PAGE = Path(__file__).with_name("reference.md")
HEAD = """# Every command and option

What `agentsdir COMMAND --help` prints, for each command. `python docs/reference.py` writes this
page, and a test compares it with the program. [commands.md](commands.md) has what commands print,
and the exit codes.
"""


def help_of(*command: str) -> str:
    """Return what a command prints for `--help` on a terminal of 80 columns."""
    return subprocess.run(
        [sys.executable, "-m", "agentsdir.cli.main", *command, "--help"],
        env={**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def page() -> str:
    """Return the page."""
    parts = [HEAD, _fenced(help_of())]
    for group, commands in GROUPS.items():
        parts.append(f"## {group}\n")
        for name in commands:
            parts += [f"### {name}\n", _fenced(help_of(name))]
    return "\n".join(parts)


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n"


if __name__ == "__main__":
    PAGE.write_text(page())
