"""Shells with job control at terminals of their own: behind a pty of ours, and in tmux."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

SHELL = ["bash", "--norc", "--noprofile", "-i"]


def screen(shown: str) -> list[str]:
    """Return the lines that a wide terminal shows in the end, of the few codes that we use.

    Args:
        shown: what was written to it, each line with LF alone.
    """
    lines, at = [""], 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", shown):
        if piece == "\n":
            lines.append("")
            at = 0
        elif piece == "\r":
            at = 0
        elif piece.endswith("J"):
            lines[-1] = lines[-1][:at]
        elif not piece.startswith("\x1b"):
            lines[-1] = lines[-1][:at] + piece + lines[-1][at + len(piece) :]
            at += len(piece)
    return [line.rstrip() for line in lines]


class PtyConsole:
    """An interactive shell at a pty: it has a session of its own, and the pty is its terminal."""

    def __init__(self, variables: Mapping[str, str], cwd: Path) -> None:
        self._variables = dict(variables)
        self._cwd = cwd
        self._shown = b""

    def __enter__(self) -> Self:
        self._pid, self._master = pty.fork()
        if not self._pid:
            os.chdir(self._cwd)
            os.execvpe(SHELL[0], SHELL, self._variables)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_rest: object) -> None:
        os.kill(self._pid, signal.SIGHUP)
        # A shell that is about to show its prompt may sleep over the signal.
        deadline = time.monotonic() + 5
        while not os.waitpid(self._pid, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(self._pid, signal.SIGKILL)
            time.sleep(0.01)
        os.close(self._master)
        self._thread.join(20)

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        os.write(self._master, line.encode() + b"\r")

    @property
    def shown(self) -> str:
        """Return what was shown until now, with what was typed, which the terminal echoes."""
        return self._shown.decode(errors="replace").replace("\r", "")

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the last process has let go of the terminal, or it was closed
                return
            if not piece:
                return
            self._shown += piece


class TmuxConsole:
    """An interactive shell in a tmux server of its own."""

    def __init__(self, variables: Mapping[str, str], cwd: Path) -> None:
        self._variables = {name: value for name, value in variables.items() if name != "TMUX"}
        self._cwd = cwd
        self._socket = str(cwd / "tmux")

    def _tmux(self, *arguments: str) -> str:
        return subprocess.run(
            ["tmux", "-S", self._socket, "-f", os.devnull, *arguments],
            env=self._variables,
            cwd=self._cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout

    def __enter__(self) -> Self:
        self._tmux("new-session", "-d", "-x", "220", "-y", "50", *SHELL)
        return self

    def __exit__(self, *_rest: object) -> None:
        self._tmux("kill-server")

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        self.write(line)
        self.press("Enter")

    def write(self, text: str) -> None:
        """Type a text without Enter."""
        self._tmux("send-keys", "-l", text)

    def press(self, key: str) -> None:
        """Press a key, by the name that tmux has for it."""
        self._tmux("send-keys", key)

    @property
    def shown(self) -> str:
        """Return what the screen and what was scrolled off it show."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")


CONSOLES = {"pty": PtyConsole} | ({"tmux": TmuxConsole} if shutil.which("tmux") else {})
"""Where there is no tmux, the pty proves the same."""
