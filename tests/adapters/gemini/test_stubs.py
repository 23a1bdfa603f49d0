"""A stub is taken away, and no file in which a person or a model said something ever is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.adapters.gemini.run import has_answer, is_stub, remove_stubs

ID = "6f1b2f4e-93a7-4f0e-a0b5-0a4d6f3c1e02"
TIME = "2026-01-02T03:04:05.000Z"
HEADER = {"sessionId": ID, "projectHash": "h", "startTime": TIME, "lastUpdated": TIME}
CONTEXT = {
    "id": "c",
    "type": "user",
    "timestamp": TIME,
    "content": [{"text": "<session_context>\nToday</session_context>"}],
}
SET = {"$set": {"messages": [CONTEXT], "lastUpdated": TIME}}
PROMPT = {"id": "u", "type": "user", "timestamp": TIME, "content": [{"text": "hi"}]}
ANSWER = {"id": "g", "type": "gemini", "timestamp": TIME, "content": "Hello."}


def write(path: Path, *rows: Any) -> Path:
    """Write a chat file of some rows; bytes stand as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows)
    )
    return path


@pytest.mark.parametrize(
    "rows",
    [
        (HEADER,),
        (HEADER, SET),
        (HEADER, SET, HEADER, SET, {"$set": {"sessionId": ID}}),
        (HEADER, b"\n", SET),
        ({**HEADER, "kind": "main"}, {"$set": {"summary": "A title"}}),
    ],
)
def test_a_header_and_the_clients_own_context_are_a_stub(tmp_path: Path, rows: Any) -> None:
    """As 0.40, 0.45 and 0.61 leave them, also when one was resumed into."""
    assert is_stub(write(tmp_path / "a.jsonl", *rows), ID)


OTHER = {**HEADER, "sessionId": "another"}


@pytest.mark.parametrize(
    "rows",
    [
        (HEADER, SET, PROMPT),
        (HEADER, SET, ANSWER),
        (HEADER, {"$set": {"messages": [CONTEXT, PROMPT]}}),
        (HEADER, {"$set": {"messages": [{**CONTEXT, "type": "gemini"}]}}),
        (HEADER, {"$set": {"messages": [{**CONTEXT, "content": [{"functionResponse": {}}]}]}}),
        (HEADER, {"$set": {"messages": ["?"]}}),
        (HEADER, {"$set": "?"}),
        (HEADER, {"$rewindTo": "u"}),
        ({**HEADER, "messages": [PROMPT]},),
        (HEADER, b'{"id":"u","type":"us'),
        (HEADER, b"[1]\n"),
        (OTHER, SET),
        (SET,),
        (),
    ],
)
def test_anything_more_or_less_is_none(tmp_path: Path, rows: Any) -> None:
    """A prompt, an answer, an unknown row, half a row, another's header, no header."""
    assert not is_stub(write(tmp_path / "a.jsonl", *rows), ID)


def test_a_document_a_link_and_what_cannot_be_read_are_none(tmp_path: Path) -> None:
    """Only a log of its own can be one."""
    real = write(tmp_path / "a.jsonl", HEADER)
    assert not is_stub(write(tmp_path / "a.json", HEADER), ID)
    (tmp_path / "b.jsonl").symlink_to(real)
    assert not is_stub(tmp_path / "b.jsonl", ID)
    assert not is_stub(tmp_path / "gone.jsonl", ID)
    assert not is_stub(write(tmp_path / "long.jsonl", HEADER, b"\n" * (1 << 20)), ID)
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert not is_stub(tmp_path / "pipe.jsonl", ID)


def test_only_stubs_beside_the_sessions_own_file_are_removed(tmp_path: Path) -> None:
    """One that is nothing but a stub stays, also beside a copy of it in another folder."""
    chats = tmp_path / "tmp/ws/chats"
    elsewhere = write(
        tmp_path / f"tmp/old/chats/session-2026-01-02T03-03-{ID[:8]}.jsonl", HEADER, SET
    )
    own = write(chats / f"session-2026-01-02T03-04-{ID[:8]}.jsonl", HEADER, SET, PROMPT, ANSWER)
    stub = write(chats / f"session-2026-01-02T03-05-{ID[:8]}.jsonl", HEADER, SET)
    other = write(chats / "session-2026-01-02T03-05-another.jsonl", OTHER, SET)
    assert remove_stubs(chats, ID) == [stub]
    assert sorted(chats.iterdir()) == sorted([own, other])
    assert remove_stubs(chats, ID) == []
    assert remove_stubs(chats, "another") == []
    assert sorted(chats.iterdir()) == sorted([own, other])
    assert remove_stubs(elsewhere.parent, ID) == []
    assert elsewhere.exists()


@pytest.mark.parametrize(
    ("rows", "answered"),
    [
        ((HEADER, SET), False),
        ((HEADER, SET, PROMPT), False),
        ((HEADER, SET, PROMPT, ANSWER), True),
        ((HEADER, SET, PROMPT, ANSWER, {"$set": {"messages": [CONTEXT]}}), True),
    ],
)
def test_an_answer_counts_be_it_withdrawn_since(tmp_path: Path, rows: Any, answered: bool) -> None:
    """What the client would not go on with is not nothing."""
    write(tmp_path / f"session-2026-01-02T03-04-{ID[:8]}.jsonl", *rows)
    assert has_answer(tmp_path, ID) is answered
