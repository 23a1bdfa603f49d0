"""An agent of Gemini CLI with a program in the client's place, which answers at once.

Its turn is a resume that restates the history, and the rows of one turn.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import gemini_rows

from agentsdir.adapters.protocol import Host
from agentsdir.engine.create import NewAgent, create_agent
from agentsdir.engine.dispatcher import send
from agentsdir.engine.services import ClientConfig
from agentsdir.formats.store.agent import read_agent
from agentsdir.formats.store.checkpoint import read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from turn_costs import Root

    from agentsdir.engine.services import Services

PROGRAM = """
import json, pathlib, sys
if "--version" in sys.argv:
    sys.exit(print("0.61.0"))
sys.stdin.read()
(name,) = [word.split("=")[1] for word in sys.argv if word.startswith(("--session-id", "--resume"))]
(chat,) = pathlib.Path(CHATS).glob("*.jsonl")
print(json.dumps({"type": "init", "session_id": name, "model": "m"}), flush=True)
with chat.open("ab") as file:
    file.write(pathlib.Path(NEXT).read_bytes())
print(json.dumps({"type": "result", "status": "success", "stats": {}}), flush=True)
"""


class GeminiAgent:
    """An agent whose client has a long log.

    Args:
        root: has the agent.
        folder: is for the client, empty.
        size: of the log in bytes.
    """

    def __init__(self, root: Root, folder: Path, size: int) -> None:
        self._root = root
        workspace, chats = folder / "w", folder / "home" / ".gemini" / "tmp" / "w" / "chats"
        workspace.mkdir(parents=True)
        chats.mkdir(parents=True)
        (chats.parent / ".project_root").write_text(str(workspace))
        self._next, program = folder / "next", folder / "program.py"
        constants = f"CHATS = {str(chats)!r}\nNEXT = {str(self._next)!r}\n"
        program.write_text(constants + PROGRAM)
        home = folder / "home"
        command = (sys.executable, "-I", "-S", str(program))
        host = Host(home, {**os.environ, "HOME": str(home)}, command)
        self._config = ClientConfig(host)
        new = NewAgent(cwd=str(workspace), login="me", provider="gemini")
        self._paths = root.layout.agent(create_agent(self._services(), new))
        native = read_agent(self._paths).state.native["id"]
        session = gemini_rows.Session("turns", 11)
        session.header["sessionId"] = native
        self._log = gemini_rows.Log(session, resumes=True)
        self.chat = chats / f"session-2026-03-01T08-00-{native[:8]}.jsonl"
        gemini_rows.write_turns(self.chat, size, self._log)

    def _services(self) -> Services:
        return self._root.services()._replace(client_config=lambda _state: self._config)

    def write_next(self) -> None:
        """Write what the client appends in the next turn."""
        self._next.write_bytes(b"".join(self._log.turn()))

    def turn(self) -> None:
        """Run a turn."""
        send(self._services(), self._paths, [{"type": "text", "text": "go on"}], lambda _: None)

    @property
    def is_read(self) -> bool:
        """Whether the log was read to its end, and a checkpoint made of it."""
        known = read_checkpoint(self._paths)
        return known is not None and known.size == self.chat.stat().st_size
