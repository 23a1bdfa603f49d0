"""What is particular to this client's store: marks, registry, two ages of files, ids in headers."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from clients import ID, OTHER
from gemini_client import DOCUMENT, Gemini
from gemini_files import NAME, STUB, TALK, header, log, prompt


def put(
    client: Gemini, data: bytes = TALK, name: str = f"{NAME}.jsonl", project: str = "", age: int = 0
) -> Path:
    """Write a session's file; return where it is."""
    folder = client.storage / "tmp" / project if project else client.project
    path = client.stand(data, f"chats/{name}", folder)
    os.utime(path, (0, 1_700_000_000 - age))
    return path


def locate(client: Gemini, native_id: str) -> list[Path]:
    """Return where the transcripts of an id are."""
    return client.reader.locate(client.storage, native_id)


def test_the_folder_of_a_session_is_found_by_mark_registry_or_hash(client: Gemini) -> None:
    """And is unknown where none of them says it."""
    hashed = sha256(b"/srv/registered").hexdigest()
    client.storage.mkdir()
    (client.storage / "projects.json").write_text(
        json.dumps({"projects": {"/srv/registered": "registered", "/srv/stale": "my-work"}})
    )
    for number, project in enumerate(("", "registered", hashed, "unknown", "ab" * 32)):
        native = f"{number:08}-0000-4000-8000-000000000000"
        put(client, log(header(native), prompt("x")), f"session-{number}.jsonl", project, number)
    here, there = client.listed_cwd, "/srv/registered"
    assert [session.cwd for session in client.listed()] == [here, there, there, "", ""]


@pytest.mark.parametrize(
    "registry",
    ["", "{", "[]", '{"projects": []}', '{"projects": {"/x": 1, "/y": "../z"}}'],
)
def test_a_broken_registry_hides_no_session(client: Gemini, registry: str) -> None:
    """The client takes it for an empty one, too."""
    put(client)
    (client.storage / "projects.json").write_text(registry)
    assert [session.cwd for session in client.listed()] == [client.listed_cwd]


def test_a_link_under_a_transcripts_name_is_not_among_the_transcripts(client: Gemini) -> None:
    """It may lead to the client's secrets, which stand in the same folder."""
    path = put(client)
    secret = client.storage / "oauth_creds.json"
    secret.write_bytes(b"{}")
    (path.parent / "session-z.json").symlink_to(secret)
    assert list(client.reader.transcripts(client.storage, pytest.fail)) == [path]


def test_a_session_of_two_ages_is_one_row_and_the_log_is_the_session(client: Gemini) -> None:
    """The document that it was resumed from, and the stub of the resume, are not told apart."""
    old = put(client, DOCUMENT, f"{NAME}.json")
    new = put(client, age=5)
    stub = put(client, STUB, "session-2026-02-02T00-00-6f1b2f4e.jsonl", age=-10)
    assert [session.file for session in client.listed()] == [new]
    assert locate(client, ID) == [new, old, stub]
    new.write_bytes(STUB)
    assert locate(client, ID)[0] == old


def test_a_copy_in_the_same_projects_other_folder_is_no_other_session(client: Gemini) -> None:
    """A client that names folders anew copies the old ones."""
    put(client, project=client.hashed.name, age=5)
    new = put(client)
    moved = put(client, project="elsewhere", age=9)
    assert [session.file for session in client.listed()] == [new, moved]


def test_sessions_that_all_have_one_id_are_listed_each(client: Gemini) -> None:
    """Some clients give all of theirs the same."""
    for number in range(3):
        data = log(header("a2a-server"), prompt(str(number)))
        put(client, data, f"session-{number}-a2a-serv.jsonl", age=number)
    assert [session.title for session in client.listed()] == ["0", "1", "2"]
    assert locate(client, "a2a-server")[0].name == "session-0-a2a-serv.jsonl"


def test_an_id_is_what_the_header_says(client: Gemini) -> None:
    """Whatever the file is called; the name holds 8 characters at most."""
    path = put(client, name="session-2026-01-02T03-04-ffffffff.jsonl")
    assert locate(client, ID) == [path]
    assert locate(client, "ffffffff") == []
    assert client.reader.native_id(path) == ID


def test_a_whole_id_may_be_short_and_finds_itself_alone(client: Gemini) -> None:
    """Also where it is the beginning of another."""
    paths = [
        put(client, log(header(native), prompt("x")), f"session-{number}.jsonl")
        for number, native in enumerate(("my-own", OTHER, f"{OTHER}f"))
    ]
    assert locate(client, "my-own") == paths[:1]
    assert locate(client, OTHER) == paths[1:2]


RIM = {"sessionId": ID, "projectHash": "ab" * 32}
SAID = {"id": "g", "type": "gemini", "timestamp": "2026-01-02T03:04:05.000Z", "content": "A cat."}


def _rows(*rows: Any) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def test_a_stub_whose_head_ends_within_a_second_header_is_not_listed(client: Gemini) -> None:
    """A resume in one minute after another leaves the context twice, and nothing else."""
    text = "<session_context>" + "x" * 65_182 + "</session_context>"
    context = {"id": "c", "type": "user", "timestamp": SAID["timestamp"]}
    change = {"$set": {"messages": [{**context, "content": [{"text": text}]}]}}
    once = _rows(RIM, change)
    assert 64 * 1024 - len(_rows(RIM)) < len(once) < 64 * 1024
    put(client, once + _rows(RIM, change))
    assert client.listed() == []


def test_a_log_without_its_header_is_listed_under_its_files_name(client: Gemini) -> None:
    """An empty id names no session."""
    path = put(client, _rows(SAID))
    assert [row.id for row in client.listed()] == [NAME]
    assert locate(client, NAME) == [path]


def test_an_id_that_stands_deeper_is_not_the_sessions(client: Gemini) -> None:
    """What a text search finds counts only where it is the header's own."""
    inner = {"sessionId": "other", "kind": "subagent", "startTime": "2020-01-01T00:00:00Z"}
    put(client, _rows({"x": inner, **RIM}, SAID))
    assert [(row.id, row.created) for row in client.listed()] == [(ID, None)]
