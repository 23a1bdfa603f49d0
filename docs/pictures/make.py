"""Draws the pictures of the documents: what a terminal shows, as SVG.

    python docs/pictures/make.py [NAME...]

Each picture is the screen of a real terminal (tmux) in which the commands of its scene were typed,
in an agents directory that the script makes for it, on the provider `script`, which plays what is
written below. It needs agentsdir on the search path, and tmux.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PROMPT = "$ "


class Scene(NamedTuple):
    """One picture.

    Attributes:
        keys: what is typed, in the form of tmux: `Enter` and `C-o` are keys, all else is text. A
            number waits so many seconds; a text that begins with `…` waits until it is shown.
        before: command lines that are run first, and not shown.
    """

    columns: int
    rows: int
    keys: tuple[str | float, ...]
    before: tuple[str, ...] = ()


def block(kind: str, at: int, **fields: Any) -> dict[str, Any]:
    """Return an event that completes a block."""
    base = {"type": kind, "id": str(at), "conversationId": "main", "sessionId": "talk"}
    return {
        "type": "block_complete",
        "blockId": str(at),
        "conversationId": "main",
        "block": {**base, "timestamp": None, "source": None, **fields},
    }


def turn(*steps: tuple[str, dict[str, Any], str, float] | str) -> Iterator[dict[str, Any]]:
    """Yield the events of a turn: calls (tool, input, output, seconds), and texts."""
    yield {"type": "turn"}
    for at, step in enumerate(steps, 1):
        if isinstance(step, str):
            start = block("assistant_text", at, content="")
            yield {**start, "type": "block_start"}
            for word in step.split(" "):
                delta = word if step.startswith(word) else f" {word}"
                yield {"type": "text_delta", "blockId": str(at), "conversationId": "main",
                       "delta": delta}  # fmt: skip
                yield {"type": "sleep", "seconds": 0.01}
            yield block("assistant_text", at, content=step)
            continue
        tool, given, output, seconds = step
        call = {"toolName": tool, "toolUseId": f"call-{at}", "input": given}
        yield block("tool_use", at, **call, status="pending")
        yield {"type": "sleep", "seconds": seconds}
        result = {"toolUseId": f"call-{at}", "output": output, "isError": False}
        yield block("tool_result", at + 100, **result)


TALK = [
    *turn(
        ("Read", {"file_path": "src/dates.py"}, "def parse(text):\n    ...\n" * 20, 0.3),
        ("Bash", {"command": "pytest -q tests/test_dates.py"}, "1 failed, 11 passed", 1.2),
        (
            "Edit",
            {
                "file_path": "src/dates.py",
                "old_string": "month, day = text.split('-')",
                "new_string": "year, month, day = text.split('-')",
            },
            "The file was edited.",
            0.2,
        ),
        ("Bash", {"command": "pytest -q tests/test_dates.py"}, "12 passed", 1.1),
        "The test failed since `parse` took the **year** for a month.\n\n"
        "- it now reads all three parts\n- all 12 tests pass",
    ),
    *turn("A year of two digits is refused, as before."),
]
WORLD = (
    "mkdir -p shop notes",
    "cd shop",
    "new fixer -o file=$TALK",
    "new reviewer",
    "send reviewer 'is the basket emptied after an order?'",
    "cd ../notes",
    "new scribe",
    "send scribe 'put the minutes of today in order'",
    "suspend scribe",
    "cd ../shop",
)
SEND = ("send fixer 'why does the test of dates fail?'", "Enter", "…all 12 tests pass", 1.0)
SCENES = {
    "list": Scene(100, 9, ("agentsdir list", "Enter", 1.5), ("send fixer 'why does it fail?'",)),
    "send": Scene(100, 18, ("agentsdir " + SEND[0], *SEND[1:])),
    "log": Scene(
        100,
        20,
        ("agentsdir log fixer --no-pager", "Enter", 1.5),
        ("send fixer 'why does the test of dates fail?'", "send fixer 'and 01-02-03?'"),
    ),
    "chat": Scene(
        100,
        22,
        (
            *("agentsdir chat fixer", "Enter", "…fixer · created", 0.5),
            *(
                "why does the test of dates fail?",
                "Enter",
                "…pytest",
                "and what of 01-02-03?",
                "Enter",
            ),
            *("then write it do", "…12 passed", 0.2),
        ),
    ),
}


class TmuxShell:
    """A shell in tmux, in a home of its own."""

    def __init__(self, folder: Path, columns: int, rows: int) -> None:
        self._folder = folder
        talk = folder / "talk.jsonl"
        talk.write_text("".join(json.dumps(event) + "\n" for event in TALK))
        self._env = {
            "HOME": str(folder),
            "PATH": os.environ["PATH"],
            "USER": "me",
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            "TALK": str(talk),
            "PS1": PROMPT,
        }
        shell = ["bash", "--norc", "--noprofile", "-i"]
        size = ["-x", str(columns), "-y", str(rows)]
        self.tmux("new-session", "-d", *size, *shell)
        self.tmux("set", "-g", "status", "off")

    def tmux(self, *arguments: str) -> str:
        """Run a command of tmux and return what it prints."""
        return subprocess.run(
            ["tmux", "-S", str(self._folder / "tmux"), "-f", os.devnull, *arguments],
            env=self._env,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def run(self, line: str) -> None:
        """Type a command line, wait for its end, and clear the screen."""
        verb = line.split()[0]
        if verb == "new":
            name, *options = line.split()[1:]
            provider = "script" if options else "echo"
            line = f"agentsdir new --provider {provider} --name {name} {' '.join(options)}"
        elif verb not in ("mkdir", "cd"):
            line = f"agentsdir {line}"
        self.type(f"{line} >/dev/null 2>&1; clear; echo done-$?", "Enter", "…done-0")
        self.type("clear", "Enter", 0.3)
        self.tmux("clear-history")

    def type(self, *keys: str | float) -> None:
        """Type keys, and wait, as a `Scene` says."""
        for key in keys:
            if isinstance(key, float):
                time.sleep(key)
            elif key.startswith("…"):
                self._wait_for(key[1:])
            else:
                literal = [] if key == "Enter" or key.startswith("C-") else ["-l"]
                self.tmux("send-keys", *literal, key)

    def _wait_for(self, text: str) -> None:
        end = time.monotonic() + 60
        while text not in self.tmux("capture-pane", "-p"):
            if time.monotonic() > end:
                sys.exit(f"{text!r} was not shown:\n{self.tmux('capture-pane', '-p')}")
            time.sleep(0.1)

    def screen(self) -> str:
        """Return the screen, with its colours."""
        return self.tmux("capture-pane", "-p", "-e")


def draw(name: str, scene: Scene) -> None:
    """Play a scene, and write its picture."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        terminal = TmuxShell(Path(folder), scene.columns, scene.rows)
        try:
            for line in (*WORLD, *scene.before):
                terminal.run(line)
            terminal.type(*scene.keys)
            shown = terminal.screen().replace(folder, "~").rstrip()
        finally:
            terminal.tmux("kill-server")
    console = Console(record=True, width=scene.columns, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(Text.from_ansi(shown))
    # Without an id of its own each run gives other bytes.
    svg = console.export_svg(title="agentsdir", unique_id=name)
    (HERE / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    for one in sys.argv[1:] or SCENES:
        draw(one, SCENES[one])
