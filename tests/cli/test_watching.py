"""`list --watch` at a terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import until
from consoles import PtyConsole


@pytest.fixture
def variables(shell: Any, tmp_path: Path) -> dict[str, str]:
    """Return the variables of a shell that finds this program."""
    program = tmp_path / "bin" / "agentsdir"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentsdir.cli.main "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**shell.environment(), "PATH": path, "PS1": "ready> ", "TERM": "xterm"}


def test_a_watched_list_is_redrawn_rings_and_leaves_the_terminal_as_it_was(
    shell: Any, variables: dict[str, str]
) -> None:
    """When a turn ends; `q` and Ctrl-C leave; keys are neither shown nor left for the shell."""
    script = shell.cwd / "slow.jsonl"
    script.write_text('{"type": "turn"}\n{"type": "sleep", "seconds": 2.5}\n')
    shell.script(str(script), "--name", "worker")
    shell.new("--name", "evil")
    shell.ok("send", "evil", "\u202ehi")
    with PtyConsole(variables, shell.cwd) as console:
        console.type("stty rows 12 cols 60; agentsdir list --watch")
        until(lambda: "2 agents, 0 running" in console.shown, "the agents are shown")
        assert "\x1b[?1049h" in console.shown
        assert "\u202e" not in console.shown
        turn = shell.start("send", "worker", "go")
        until(lambda: "1 running" in console.shown, "the agent works")
        assert "\x07" not in console.shown
        until(lambda: console.shown.count("0 running") == 2, "it has finished")
        assert console.shown.count("\x07") == 1
        turn.communicate(timeout=20)
        console.type("xyzq")
        until(lambda: "\x1b[?1049l" in console.shown, "the former screen is back")
        console.type("stty -a | tr ' ' '\\n' | grep -c '^-icanon;*$'; echo left $?")
        until(lambda: "left 1" in console.shown, "the shell has the keyboard again")
        assert "xyz" not in console.shown

        console.type("agentsdir list --watch")
        until(lambda: console.shown.count("\x1b[?1049h") == 2, "it is shown again")
        console.type("\x03")
        until(lambda: console.shown.count("\x1b[?1049l") == 2, "Ctrl-C leaves, too")
        console.type("echo code $?")
        until(lambda: "code 130" in console.shown, "with the code of an interrupt")


@pytest.mark.parametrize("options", [(), ("--tree",), ("--json",), ("--native",)])
def test_what_cannot_be_watched_is_refused(shell: Any, options: tuple[str, ...]) -> None:
    """Without a terminal, and together with what is no list of agents at a terminal."""
    done = shell("list", "--watch", *options, tty=bool(options))
    assert (done.code, done.out) == (2, "")
    shell.variables["TERM"] = "dumb"
    assert shell("list", "--watch", tty=True).code == 2
