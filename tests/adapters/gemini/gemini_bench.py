"""A stand-in for Gemini CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import Bench
from clients import ID, OTHER
from gemini_files import NAME, log

from agentsdir.adapters.gemini.run import GeminiProvider
from agentsdir.adapters.protocol import SessionSpec

TIME = "2026-01-02T03:04:05.000Z"
CHAT = f"tmp/ws/chats/{NAME}.jsonl"
ASKED = {"id": "u0", "type": "user", "timestamp": TIME, "content": "before"}
ANSWERED = {"id": "g0", "type": "gemini", "timestamp": TIME, "content": "Before."}


def chat(*rows: dict[str, Any]) -> dict[str, bytes]:
    """Return a saved chat file of the session with some rows."""
    header = {"sessionId": ID, "projectHash": "h", "startTime": TIME, "lastUpdated": TIME}
    return {CHAT: log(header, *rows)}


class GeminiBench(Bench):
    """It reads the whole of its input; `part` says a piece of the answer.

    `chat` appends rows to the session's chat file as the client does.
    """

    provider = GeminiProvider()
    script = f"""\
if sys.argv[1:] == ["--version"]: sys.exit(print(VERSION))
def init(name):
    say(type="init", session_id=name, model="m", timestamp={TIME!r})
    say(type="message", role="user", content=heard, timestamp={TIME!r})
def part(text):
    say(type="message", role="assistant", content=text, delta=True, timestamp={TIME!r})
def done(): say(type="result", status="success", stats={{}}, timestamp={TIME!r})
def chat(*rows):
    at = pathlib.Path(os.environ["HOME"], ".gemini/tmp/ws/chats")
    at.mkdir(parents=True, exist_ok=True)
    with open(at / f"session-2026-01-02T03-04-{{ID[:8]}}.jsonl", "a") as file:
        file.writelines(json.dumps(row) + "\\n" for row in rows)
def header(): return dict(sessionId=ID, projectHash="h", startTime={TIME!r}, lastUpdated={TIME!r})
def row(name, kind, text, **more):
    return dict(id=name, type=kind, timestamp={TIME!r}, content=text, **more)
heard = sys.stdin.read()
note("heard", heard)
known = [a.split("=")[1] for a in sys.argv if a.startswith(("--session-id", "--resume"))]
ID = known[0] if known else {OTHER!r}
BODY
"""
    turn = (
        "init(ID); chat(header(), row('u1', 'user', 'hi')); part('An '); part('answer')\n"
        "chat(row('g1', 'gemini', 'An answer')); done()"
    )
    begins = "init(ID)"
    chats = "say(type='message', role='user', content='and another thing')"
    mode_option = "--approval-mode"
    inherited = {"GEMINI_CLI": "1"}
    saved = chat(ASKED, ANSWERED)
    version = "0.61.0"

    def spec(
        self, body: str = "done()", saved: dict[str, bytes] | None = None, **fields: Any
    ) -> SessionSpec:
        spec = super().spec(body, saved, **fields)
        script = self.folder / "client.py"
        script.write_text(script.read_text().replace("VERSION", repr(self.version)))
        return spec

    @property
    def chats_folder(self) -> Path:
        """Where the client writes its chat files."""
        return self.home / ".gemini" / "tmp" / "ws" / "chats"

    def heard(self, run: int = 0) -> str:
        """Return the input that the client had."""
        text: str = json.loads((self.folder / f"heard-{run}").read_text())
        return text
