"""Chat files in which nothing is said: what newer clients leave when they resume a session.

Such a stub has the id of the session that it stands beside. The next start of a client in the
project takes it for a broken session, and deletes every file of that id, the real one included. So
a stub that a turn of ours left is taken away.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from agentsdir.adapters.gemini.store import contents as store
from agentsdir.adapters.gemini.transcripts.sessions import read_session
from agentsdir.formats.reading.sink import ParseSink

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST_STUB = 1024 * 1024
"""Bytes that a stub has at most: a header, and the context that the client sends itself."""
_ANSWERS = frozenset({"assistant_text", "thinking", "tool_use", "subagent"})
_CONTEXT = "<session_context>"


def remove_stubs(chats: Path, native_id: str) -> list[Path]:
    """Remove the stubs beside a session's own chat file; return what was removed."""
    removed = []
    for path in [card.file for card in store.of_folder(chats, native_id)][1:]:
        if is_stub(path, native_id):
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


def has_answer(chats: Path, native_id: str) -> bool:
    """Tell whether a model said anything in a session's chat files, be it withdrawn since."""
    for card in store.of_folder(chats, native_id):
        sink = ParseSink()
        read_session(store.files(card.file), sink)
        if any(block["type"] in _ANSWERS for block in sink.blocks("all")):
            return True
    return False


def is_stub(path: Path, native_id: str) -> bool:
    """Tell whether a log of that session has a header and the client's own context, and no more."""
    if path.suffix != ".jsonl":
        return False
    try:
        # O_NONBLOCK: whatever else stands there must not hang us.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_STUB:
                return False
            rows = [orjson.loads(line) for line in stream.read().split(b"\n") if line.strip()]
    except (OSError, orjson.JSONDecodeError):
        return False
    named = any(isinstance(row, dict) and row.get("sessionId") == native_id for row in rows)
    return named and all(_says_nothing(row) for row in rows)


def _says_nothing(row: Any) -> bool:
    if not isinstance(row, dict) or "id" in row or "$rewindTo" in row:
        return False
    said = row.get("$set", row)
    messages = said.get("messages", []) if isinstance(said, dict) else None
    return isinstance(messages, list) and all(map(_is_context, messages))


def _is_context(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("type") != "user":
        return False
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return all(isinstance(t, str) and t.lstrip().startswith(_CONTEXT) for t in texts)
