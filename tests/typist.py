"""A person at a terminal: a pty, and a thread that reads what is shown and types answers."""

from __future__ import annotations

import os
import pty
import threading
from pathlib import Path
from typing import Self


class Typist:
    """Types one answer each time a prompt stands at the end of what is shown.

    Args:
        answers: what is typed, one for each prompt that ends so.
        prompt: how a prompt ends.
    """

    def __init__(self, *answers: bytes, prompt: str = "[y/N] ") -> None:
        self._answers = list(answers)
        self._prompt = prompt.encode()
        self._shown = b""
        self.master, self.slave = pty.openpty()
        self.terminal = Path(os.ttyname(self.slave))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_rest: object) -> None:
        os.close(self.slave)  # the last one that has it open, so that reading ends
        self._thread.join(20)
        os.close(self.master)

    def type(self, keys: bytes) -> None:
        """Type something at once."""
        os.write(self.master, keys)

    @property
    def shown(self) -> str:
        """Return what was shown until now, with what was typed, which the terminal echoes."""
        return self._shown.decode().replace("\r\n", "\n")

    def _run(self) -> None:
        while True:
            try:
                piece = os.read(self.master, 65536)
            except OSError:  # no process has the terminal any more
                return
            self._shown += piece
            if self._answers and self._shown.endswith(self._prompt):
                self.type(self._answers.pop(0))
