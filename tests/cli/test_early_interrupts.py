"""Ctrl-C while a command still imports its modules."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

# Gives itself SIGINT when the nth module is looked for after the entry point's own, and after
# `__future__`, which has to come before any line that could prepare for it.
PROBE = """
import __future__, os, sys
import agentsdir.cli
left = int(sys.argv.pop(1))
begun = False
def audit(event, arguments):
    global begun, left
    if event == "import" and begun:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 2)
    elif event == "import" and arguments[0] == "agentsdir.cli.main":
        begun = True
sys.addaudithook(audit)
sys.argv[0] = "agentsdir"
from agentsdir.cli.main import main
main()
"""


# `list` looks for some 150 modules: the first are the entry point, the last those of the command.
@pytest.mark.parametrize("at", [*range(1, 12), 30, 60, 120])
@pytest.mark.parametrize("verb", ["list", "send"])
def test_ctrl_c_is_no_traceback_whatever_is_being_imported(shell: Any, verb: str, at: int) -> None:
    """And exit code 130, as later on."""
    words = {"list": ["list"], "send": ["send", "nobody", "hi"]}[verb]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(at), *words],
        env=shell.environment(),
        cwd=shell.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        # A shell starts its background jobs, such as a test run, with SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stderr) == (130, "")
