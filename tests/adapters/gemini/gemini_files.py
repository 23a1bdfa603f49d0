"""Session files in the making, and a machine with a client's store, shared by the Gemini tests."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from agentsdir.adapters.contract import Host, SessionSpec
from agentsdir.formats.reading.source import Source

ID = "6f1b2f4e-93a7-4f0e-a0b5-0a4d6f3c1e01"
OTHER = "0000000a-0000-4000-8000-00000000000b"
NOW = "2026-01-02T03:04:05.678900Z"
NAME = "session-2026-01-02T03-04-6f1b2f4e"


def header(native_id: str = ID, kind: str | None = "main", **more: Any) -> dict[str, Any]:
    """Return the first row of a log, or what a document says beside its messages."""
    value = {
        "sessionId": native_id,
        "projectHash": "ab" * 32,
        "startTime": "2026-01-02T03:04:05.678Z",
        "lastUpdated": "2026-01-02T03:04:06.000Z",
    }
    return value | ({} if kind is None else {"kind": kind}) | more


def message(name: str, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return one message."""
    value = {"id": name, "timestamp": "2026-01-02T03:04:05.700Z", "type": kind}
    return value | {"content": content} | more


def prompt(text: Any, name: str = "u1", **more: Any) -> dict[str, Any]:
    """Return a message in which somebody says something."""
    return message(name, "user", [{"text": text}] if isinstance(text, str) else text, **more)


def answer(text: str = "yes", name: str = "g1", **more: Any) -> dict[str, Any]:
    """Return the model's answer."""
    return message(name, "gemini", text, **{"model": "gemini-2.5-flash", **more})


def context(folder: str = "/old/place") -> dict[str, Any]:
    """Return the row with which newer clients begin, of the same shape."""
    text = f"<session_context>\n- **Workspace Directories:**\n  - {folder}\n</session_context>"
    said = message("d04923d38bb0f6017037e74183378ef4", "user", [{"text": text}])
    return {"$set": {"messages": [said], "lastUpdated": "2026-01-02T03:04:05.700Z"}}


def log(*rows: dict[str, Any]) -> bytes:
    """Return rows as the client appends them."""
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def document(*messages: dict[str, Any], **said: Any) -> bytes:
    """Return a session as clients up to 0.38 write it."""
    value = {**header(kind=None), "messages": list(messages), **said}
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


TALK = log(header(), context(), prompt("hi"), answer())
STUB = log(header(startTime="2026-02-02T00:00:00.000Z"), context())


class Machine:
    """A home with a client's store, and a working directory."""

    def __init__(self, folder: Path, native_id: str = ID) -> None:
        self.home = folder / "home"
        self.cwd = folder / "My work ä"
        self.native_id = native_id
        for made in (self.home, self.cwd):
            made.mkdir()

    @property
    def storage(self) -> Path:
        """The client's root."""
        return self.home / ".gemini"

    @property
    def project(self) -> Path:
        """The folder of the working directory's project, by its slug."""
        return self.storage / "tmp" / "my-work"

    @property
    def hashed(self) -> Path:
        """The same in clients before 0.29."""
        return self.storage / "tmp" / sha256(str(self.cwd.resolve()).encode()).hexdigest()

    def spec(self, saved: dict[str, bytes], **host: Any) -> SessionSpec:
        """Return what a session of the machine's is asked for by."""
        files = {name: Source(name, data=data) for name, data in saved.items()}
        return SessionSpec(
            self.native_id, "", "", str(self.cwd), lambda: NOW, lambda _seconds: None,
            lambda: OTHER, transcripts=files, host=Host(self.home, **host),
        )  # fmt: skip

    def stand(self, name: str, data: bytes = TALK, project: Path | None = None) -> Path:
        """Put a file below a project's folder, as the client would, which marks it."""
        project = project or self.project
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if project == self.project:
            (project / ".project_root").write_text(str(self.cwd.resolve()))
        return path
