"""Files are distinguished by what they hold, and named by nothing else."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from gemini_reading import FIXTURES

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.source import HEAD, Source

READER = ARCHITECTURE.reader
assert READER is not None

OURS = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file() and not path.name.endswith(("blocks.jsonl", "all.jsonl", ".txt"))
)

CLAUDE = {
    "parentUuid": None, "type": "user", "uuid": "u", "sessionId": "s", "version": "2",
    "timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": "hi"},
}  # fmt: skip
CLAUDE_STREAM = {"type": "system", "subtype": "init", "session_id": "s", "model": "m", "uuid": "u"}
QUOTING = {**CLAUDE, "message": {"role": "user", "content": '{"sessionId":"a","projectHash":"b"}'}}
OWN_EVENT = {"type": "block_start", "blockId": "b", "block": {}, "conversationId": "main"}
OWN_BLOCK = {
    "type": "user_message", "id": "m:p", "conversationId": "main", "sessionId": "s",
    "timestamp": "2026-01-01T00:00:00Z", "content": "hi", "source": None,
}  # fmt: skip
FOREIGN = {
    "claude row": json.dumps(CLAUDE),
    "claude stream": json.dumps(CLAUDE_STREAM),
    "claude row that quotes a header": json.dumps(QUOTING),
    "own event": json.dumps(OWN_EVENT),
    "own block": json.dumps(OWN_BLOCK),
    "package": '{\n  "name": "x",\n  "version": "1.0.0"\n}',
    "projects.json": '{\n  "projects": {\n    "/w": "w"\n  }\n}',
    "other list": '[{"role": "user", "content": "hi"}]',
    "other history": '{"history": [{"url": "x"}]}',
    "list of numbers": "[1, 2]",
    "text": "Hello from the model.\n",
    "number": "1\n",
    "nothing": "\n",
    "binary": "\0\1\2",
}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_every_kind_of_recording_is_recognised(path: Path):
    """Logs, documents, halves of documents, streams and reports, whatever their name is."""
    assert READER.detect(path.read_bytes()[:HEAD], "anything")


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_foreign_files_are_refused(text: str):
    """Other agents' rows, our own output, sidecars and any other JSON are not ours."""
    assert not READER.detect(text.encode(), "session-2026-01-01T00-00-aaaaaaaa.jsonl")


def test_a_log_is_recognised_when_its_first_line_is_damaged_or_longer_than_the_head():
    """One bad line does not hide a transcript, nor does a huge first one."""
    log = (FIXTURES / "rewind.jsonl").read_bytes()
    assert READER.detect(b'{"torn": "' + b"\n" + log, "x")
    header = b'{"sessionId":"s","projectHash":"h","messages":["' + b"a" * HEAD
    assert READER.detect(header[:HEAD], "x")
    assert READER.detect(b'{"$set":{"messages":["' + b"a" * 100, "x")


def test_a_main_file_takes_the_children_of_its_folder_and_no_others():
    """Children stand behind the main file named by their folder; strangers stay alone."""
    main = b'{"sessionId":"aaa","projectHash":"h","kind":"main"}\n'
    child = b'{"sessionId":"c1","projectHash":"h","kind":"subagent"}\n'
    sources = [
        Source("chats/aaa/c1.jsonl", data=child),
        Source("chats/bbb/c2.jsonl", data=child),
        Source("chats/session-1-aaa.jsonl", data=main),
        Source("other/session-1-aaa.jsonl", data=main),
    ]
    grouped = [
        [(one.role, one.source.name) for one in session.transcripts]
        for session in READER.discover(sources)
    ]
    assert grouped == [
        [("subagent", "chats/bbb/c2.jsonl")],
        [("main", "chats/session-1-aaa.jsonl"), ("subagent", "chats/aaa/c1.jsonl")],
        [("main", "other/session-1-aaa.jsonl")],
    ]


def test_files_that_share_a_session_id_are_sessions_of_their_own():
    """Stubs and twins keep their id and their file; the child goes to the fuller one."""
    header = b'{"sessionId":"aaa","projectHash":"h","kind":"main"}\n'
    full = header + b'{"$set":{"lastUpdated":"2026-01-01T00:00:00Z"}}\n'
    child = b'{"sessionId":"c1","projectHash":"h","kind":"subagent"}\n'
    sources = [
        Source("chats/session-2-aaa.jsonl", data=header),
        Source("chats/session-1-aaa.jsonl", data=full),
        Source("chats/aaa/c1.jsonl", data=child),
    ]
    assert [len(session.transcripts) for session in READER.discover(sources)] == [1, 2]


def test_a_kind_inside_a_message_is_not_the_kind_of_the_file():
    """What a tool was given may say anything; only the session's own key counts."""
    row = b'{"id":"g","type":"gemini","content":"","toolCalls":[{"args":{"kind":"subagent"}}]}'
    log = b'{"sessionId":"aaa","projectHash":"h"}\n' + row + b"\n"
    document = json.dumps(
        {"sessionId": "aaa", "projectHash": "h", "messages": [json.loads(row)]}, indent=2
    ).encode()
    for data in (log, document):
        (session,) = READER.discover([Source("chats/x", data=data)])
        assert session.transcripts[0].role == "main"


def test_paths_name_the_registered_the_old_or_the_new_folder(tmp_path: Path):
    """A registered slug in use wins over a hash folder, and a hash folder over a slug by rule."""
    cwd = Path("/w/My Project!")
    chats = READER.paths(tmp_path, cwd, {}).transcripts
    assert chats == tmp_path / ".gemini" / "tmp" / "my-project" / "chats"
    old = sha256(str(cwd).encode()).hexdigest()
    (tmp_path / ".gemini" / "tmp" / old).mkdir(parents=True)
    assert READER.paths(tmp_path, cwd, {}).transcripts.parent.name == old
    registry = tmp_path / ".gemini" / "projects.json"
    registry.write_text(json.dumps({"projects": {str(cwd): "my-project-1"}}))
    assert READER.paths(tmp_path, cwd, {}).transcripts.parent.name == old
    (tmp_path / ".gemini" / "tmp" / "my-project-1" / "chats").mkdir(parents=True)
    assert READER.paths(tmp_path, cwd, {}).transcripts.parent.name == "my-project-1"
    registry.write_text(json.dumps({"projects": {str(cwd): "../../etc"}}))
    assert READER.paths(tmp_path, cwd, {}).transcripts.parent.name == old
    elsewhere = READER.paths(tmp_path, cwd, {"GEMINI_CLI_HOME": "/else"})
    assert elsewhere.storage == Path("/else/.gemini")
