"""Files that share a session's id are read each by itself, said to share it, and counted once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gemini_reading import Reading

from agentsdir.adapters.gemini import ARCHITECTURE
from agentsdir.formats.sink import ParseSink
from agentsdir.formats.source import Source

READER = ARCHITECTURE.reader
assert READER is not None

TOKENS = {"input": 10, "output": 2, "cached": 4, "thoughts": 1, "tool": 0, "total": 13}
HEADER = {"sessionId": "aaaaaaaa-1", "projectHash": "h", "kind": "main"}
USER = {"id": "u", "type": "user", "content": [{"text": "hi"}]}
MODEL = {"id": "g", "type": "gemini", "content": "hello", "tokens": TOKENS}
CONTEXT = {
    "id": "d0",
    "type": "user",
    "content": [{"text": "<session_context>\nx</session_context>"}],
}
LATER = {**MODEL, "id": "g2", "content": "again"}


def _log(*rows: Any, **header: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in ({**HEADER, **header}, *rows))


def _document(*messages: Any, **header: Any) -> bytes:
    return json.dumps({**HEADER, **header, "messages": list(messages)}, indent=2).encode()


def _read(**files: bytes) -> dict[str, list[str]]:
    """Return what is remarked on each file."""
    names = {key.replace("__", "/").replace("_", "."): data for key, data in files.items()}
    reading = Reading([Source(name, data=data) for name, data in names.items()])
    said: dict[str, list[str]] = {name: [] for name in names}
    for sink in reading.sinks:
        for finding in sink.findings:
            said[finding.file].append(f"{finding.id}: {finding.message.partition(': ')[2]}")
    return said


def test_a_twin_is_named_in_both_files() -> None:
    """A resume by a newer client leaves the document, and goes on in a log of the same name."""
    said = _read(chats__s1_json=_document(USER, MODEL), chats__s1_jsonl=_log(USER, MODEL, LATER))
    twin = ["shared-id: s1.jsonl goes on from its twin s1.json"]
    assert said == {"chats/s1.json": twin, "chats/s1.jsonl": twin}


def test_a_copy_in_another_folder_is_named() -> None:
    """A client that took over an older one's folder copied it."""
    said = _read(
        tmp__hash__chats__s1_json=_document(USER), tmp__slug__chats__s1_json=_document(USER)
    )
    assert said == {
        "tmp/hash/chats/s1.json": ["shared-id: copies stand in tmp/slug/chats"],
        "tmp/slug/chats/s1.json": ["shared-id: copies stand in tmp/hash/chats"],
    }


def test_a_stub_is_named_beside_the_session_that_left_it() -> None:
    """It holds a header, or what the client itself put there, and no conversation."""
    said = _read(s1_jsonl=_log(USER, MODEL), s2_jsonl=_log({"$set": {"messages": [CONTEXT]}}))
    assert said["s1.jsonl"] == ["shared-id: so have s2.jsonl"]
    assert [line.partition(":")[0] for line in said["s2.jsonl"]] == ["shared-id", "no-messages"]


def test_one_id_of_many_files_names_some_of_them() -> None:
    """A server that calls all its sessions the same does not fill the report with their names."""
    sources = [Source(f"s{n}.jsonl", data=_log(USER, sessionId="a2a-server")) for n in range(20)]
    reading = Reading(sources)
    assert reading.findings == ["shared-id"] * 20
    (finding,) = reading.sinks[0].findings
    assert finding.message.endswith("so have s1.jsonl, s2.jsonl, s3.jsonl and 16 more")
    assert [len(session.transcripts) for session in reading.sessions] == [1] * 20


def test_children_and_files_without_an_id_share_nothing() -> None:
    """A flat child bears its parent's id, and belongs to it."""
    child = _document({**USER, "id": "c"}, kind="subagent")
    assert _read(s1_json=_document(USER), s2_json=child)["s1.json"] == []
    assert _read(s1_jsonl=_log(USER, sessionId=""), s2_jsonl=_log(USER, sessionId="")) == {
        "s1.jsonl": [],
        "s2.jsonl": [],
    }


@pytest.mark.parametrize(("again", "total"), [(MODEL, 13), (LATER, 26)])
def test_what_two_files_have_in_common_counts_once(again: dict[str, Any], total: int) -> None:
    """Over several sessions; each by itself has all of it."""
    files = [
        Source("s1.json", data=_document(USER, MODEL)),
        Source("s1.jsonl", data=_log(USER, MODEL, again)),
    ]
    counted: set[int] = set()
    sums = []
    for session in READER.discover(files):
        sink = ParseSink(apart=True)
        READER.parse_transcripts(session, sink)
        sums.append(sink.session_usage().added(counted)["totalTokens"])
        assert sink.usage()["totalTokens"] >= 13
    assert sum(sums) == total


@pytest.mark.parametrize(
    "data",
    [
        _log(),
        _log({"$set": {"messages": [CONTEXT]}}),
        _log({"$set": {"messages": []}}, {"$set": {"lastUpdated": "2026-01-01T00:00:00Z"}}),
        _document(),
        json.dumps({**HEADER, "messages": None}).encode(),
        json.dumps({**HEADER, "messages": [None]}, indent=2).encode(),
        json.dumps(HEADER).encode(),
    ],
    ids=["header", "stub", "emptied", "document", "null", "null inside", "no list"],
)
def test_a_file_in_which_nothing_is_said_is_no_damage_and_is_named(data: bytes) -> None:
    """Header only, stub, null: three spellings of a session without a conversation."""
    reading = Reading([Source("s1.json", data=data)])
    assert reading.findings == ["no-messages"]
    assert [block for block in reading.blocks("all") if not block.get("hidden")] == []
    reading.totals()


@pytest.mark.parametrize("cut", [13, 20, 25, 27, 33, 40])
def test_a_header_that_was_cut_off_is_a_damaged_session(cut: int) -> None:
    """A full disk leaves that: corrupt, and neither empty nor some other file."""
    header = b'{"sessionId":"aaaaaaaa-1","projectHash":"h","kind":"main"}\n'
    assert not READER.detect(b'{"sessionId":"aaaaaaaa-1","other":"h', "s1.jsonl")
    reading = Reading([Source("s1.jsonl", data=header[:cut])])
    assert READER.detect(header[:cut], "s1.jsonl")
    assert reading.findings == ["torn-tail", "no-messages"]
