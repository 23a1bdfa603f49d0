"""A stand-in for a client's program, shared by the tests of running: it notes what it was given."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

from clients import ID, NOW, OTHER

from agentsdir.adapters.protocol import Host, ProgramProvider, ProviderSession, SessionSpec
from agentsdir.formats.blocks import Reducer
from agentsdir.formats.source import Source

SHORT = 0.2
"""Seconds of patience in a test in which it runs out."""

# What every stand-in begins with: its arguments and its environment stand in `given-0`, those of
# its next run in `given-1`.
NOTES = """\
import json, os, pathlib, sys, time
def say(**line): print(json.dumps(line), flush=True)
run = len([*pathlib.Path().glob("given-*")])
def note(name, value): pathlib.Path(f"{name}-{run}").write_text(json.dumps(value))
if sys.argv[1:] != ["--version"]: note("given", [sys.argv[1:], dict(os.environ)])
"""


class Bench:
    """A stand-in for the client, and what is needed to open sessions with it."""

    provider: ClassVar[ProgramProvider]
    script: ClassVar[str]
    """The program after `NOTES`, with BODY for what a test wants of it."""
    turn: ClassVar[str]
    """A body that answers "An answer"."""
    begins: ClassVar[str]
    """A body that says that the session has begun."""
    chats: ClassVar[str]
    """A line of a body that says something after its result."""
    mode_option: ClassVar[str]
    inherited: ClassVar[dict[str, str]]
    """What the client says to its children."""
    saved: ClassVar[dict[str, bytes]]
    """The saved files of the session `ID`."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        # Gemini CLI calls the folder of a project's chats by the project's name.
        self.folder = folder / "ws"
        self.folder.mkdir()
        self.named: list[str] = []
        self.host = Host(
            folder,
            {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)},
            marks={"AGENTSDIR_TURN": f"turn of {folder}"},
            on_native_id=self.named.append,
        )

    def spec(
        self, body: str = "done()", saved: dict[str, bytes] | None = None, **fields: Any
    ) -> SessionSpec:
        """Return the spec of a session whose client does something after it has the prompt."""
        script = self.folder / "client.py"
        script.write_text(NOTES + self.script.replace("BODY", body))
        files = {name: Source(name, data=data) for name, data in (saved or {}).items()}
        said = {
            "model": "",
            "system_prompt": "",
            "cwd": str(self.folder),
            "now": lambda: NOW,
            "sleep": lambda _seconds: None,
            "new_id": lambda: OTHER,
            "host": self.host._replace(command=(sys.executable, str(script))),
            "transcripts": files,
        }
        return SessionSpec(ID, **{**said, **fields})

    def create(self, body: str = "done()", **fields: Any) -> ProviderSession:
        """Open a new session."""
        return self.provider.create(self.spec(body, **fields))

    def restore(
        self, body: str = "done()", saved: dict[str, bytes] | None = None, **fields: Any
    ) -> ProviderSession:
        """Reopen the session that was saved."""
        saved = self.saved if saved is None else saved
        return self.provider.restore(self.spec(body, saved, **fields), b"anything")

    def given(self, run: int = 0) -> tuple[list[str], dict[str, str]]:
        """Return the arguments and the environment that the client had."""
        arguments, environment = json.loads((self.folder / f"given-{run}").read_text())
        return arguments, environment

    @property
    def runs(self) -> int:
        """How often the client was started for a turn."""
        return len([*self.folder.glob("given-*")])


def run(session: ProviderSession, content: Any = "hi") -> list[dict[str, Any]]:
    """Run one turn to its end."""
    try:
        return [*session.send(content)]
    finally:
        session.stop()


def blocks(events: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    """Return id, type and content of what the events come to."""
    reducer = Reducer()
    for event in events:
        reducer.apply(event)
    return [(one["id"], one["type"], one.get("content")) for one in reducer.blocks()]


def texts(events: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return type and content of what the events come to, but for what is bookkeeping."""
    return [one[1:] for one in blocks(events) if one[1] != "system"]
