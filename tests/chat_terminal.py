"""A prompt in a tmux of its own: keys go in, the screen and what was scrolled off it come out."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

WAIT = 60.0
"""Seconds that a machine under load may take; a test waits as long as it must, and no longer."""
PROGRAM = "import sys; sys.argv[0] = 'agentsdir'; from agentsdir.cli.main import main; main()"

needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux here")


class ChatTerminal:
    """One terminal, with a home and an agents directory in `folder`.

    Args:
        variables: more of the environment's; PWD is the working directory, else the home.
    """

    def __init__(self, folder: Path, columns: int, rows: int, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.home = Path(variables.get("PWD", folder / "home"))
        self.home.mkdir(exist_ok=True)
        self.root = folder / "root"
        self._size = (str(columns), str(rows))
        # A socket's path must be short.
        self._socket = f"/tmp/agentsdir-{os.getpid()}-{id(self):x}"
        self._variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "AGENTSDIR_ROOT": str(self.root),
            "SHELL": "/bin/sh",
            "AGENTSDIR_PROVIDER": "echo",
            **variables,
        }

    def agentsdir(self, *words: str, given: str = "") -> str:
        """Run a command beside the prompt; return what it prints."""
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            env=self._variables,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def inspect(self, agent: str) -> dict[str, object]:
        """Return what `inspect` says of an agent."""
        found: dict[str, object] = json.loads(self.agentsdir("inspect", agent, "--json"))
        return found

    def tmux(self, *words: str, given: str | None = None) -> str:
        """Run a command of tmux."""
        return subprocess.run(
            ["tmux", "-S", self._socket, "-f", os.devnull, *words],
            env=self._variables,
            cwd=self.home,
            input=given,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=True,
        ).stdout

    def start(self, *words: str) -> None:
        """Start `agentsdir` with words of a command line, and wait for its prompt."""
        columns, rows = self._size
        program = [sys.executable, "-c", PROGRAM, *words]
        self.tmux("new-session", "-d", "-x", columns, "-y", rows, *program, ";",
                  "set-option", "remain-on-exit", "on")  # fmt: skip
        self.wait_for("^(>|agentsdir)")

    def close(self) -> None:
        """End the terminal, and what runs in it."""
        subprocess.run(
            ["tmux", "-S", self._socket, "kill-server"], capture_output=True, check=False
        )
        Path(self._socket).unlink(missing_ok=True)

    @property
    def pid(self) -> int:
        """The process at the terminal."""
        return int(self.tmux("display-message", "-p", "#{pane_pid}"))

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.tmux("display-message", "-p", "#{pane_dead}").strip() == "1"

    @property
    def exit_code(self) -> str:
        """The exit code of the process, once it has ended."""
        # tmux 3.3 may miss that a process has ended, until another one does.
        self.tmux("run-shell", "true")
        return self.tmux("display-message", "-p", "#{pane_dead_status}").strip()

    def type(self, text: str) -> None:
        """Type a text, without Enter."""
        self.tmux("send-keys", "-l", "--", text)

    def keys(self, *names: str) -> None:
        """Press keys by their names in tmux."""
        self.tmux("send-keys", *names)

    def line(self, text: str) -> None:
        """Type a line and Enter."""
        self.type(text)
        self.keys("Enter")

    def answer(self, key: str) -> None:
        """Press a key for an answer, once a person may have read the question."""
        time.sleep(1)
        self.type(key)

    def paste(self, text: str) -> None:
        """Paste a text, as a terminal does where the program has asked for marks around it."""
        self.tmux("load-buffer", "-", given=text)
        self.tmux("paste-buffer", "-p", "-r")

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    @property
    def screen(self) -> list[str]:
        """The rows that are in sight, without blanks at their ends."""
        return [row.rstrip() for row in self.tmux("capture-pane", "-p").split("\n")]

    @property
    def shown(self) -> str:
        """All that was shown and not erased: the scrollback and the screen."""
        text = self.tmux("capture-pane", "-p", "-J", "-S", "-")
        return "\n".join(row.rstrip() for row in text.split("\n")).rstrip("\n")

    def wait_for(self, pattern: str) -> str:
        """Wait until what is shown has a pattern; return what is shown."""
        return self.wait_until(lambda shown: re.search(pattern, shown, re.MULTILINE), pattern)

    def wait_until(self, is_so: object, what: str) -> str:
        """Wait until `is_so` of what is shown; return that."""
        assert callable(is_so)
        end = time.monotonic() + WAIT
        while True:
            shown = self.shown
            if is_so(shown):
                return shown
            assert time.monotonic() < end, f"{what} is not shown:\n{shown}"
            time.sleep(0.05)

    def wait_until_still(self) -> str:
        """Wait until nothing has changed for a while; return what is shown."""
        before, same = "", 0
        end = time.monotonic() + WAIT
        while same < 15:
            shown = self.shown
            same = same + 1 if shown == before else 0
            before = shown
            assert time.monotonic() < end, f"it goes on changing:\n{shown}"
            time.sleep(0.05)
        return before

    def wait_for_status(self, pattern: str) -> None:
        """Wait until the last row, which is the state of the agent, has a pattern."""
        self.wait_until(lambda shown: re.search(pattern, shown.split("\n")[-1]), pattern)

    def script(self, name: str, *lines: Mapping[str, object]) -> Path:
        """Write a script for the provider `script`."""
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path


def text(block: str, content: str) -> dict[str, object]:
    """Return the event with which a text is complete."""
    return {"type": "block_complete", "blockId": block, "block": _block(block, content)}


def _block(block: str, content: str) -> dict[str, object]:
    return {"type": "assistant_text", "id": block, "content": content}


def begin(block: str) -> dict[str, object]:
    """Return the event with which a text begins."""
    return {"type": "block_start", "blockId": block, "block": _block(block, "")}


def delta(block: str, more: str) -> dict[str, object]:
    """Return the event that adds to a text."""
    return {"type": "text_delta", "blockId": block, "delta": more}


def sleep(seconds: float) -> dict[str, object]:
    """Return the line of a script that pauses."""
    return {"type": "sleep", "seconds": seconds}


TURN: dict[str, object] = {"type": "turn"}
