"""Session files in the making, shared by the Gemini tests."""

from __future__ import annotations

import json
from typing import Any

from clients import ID

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
    """Return a message in which a user says something."""
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
