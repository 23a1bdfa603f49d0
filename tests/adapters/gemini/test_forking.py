"""A fork is the same session under another id, to the byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from clients import ID, OTHER
from gemini_files import NAME, STUB, TALK, answer, context, document, header, log, prompt

from agentsdir.adapters.gemini.moving import fork
from agentsdir.formats.findings import Finding
from agentsdir.formats.source import Source

FORKED = "session-2026-01-02T03-04-0000000a"


def forked(saved: dict[str, bytes], old: str = ID) -> tuple[dict[str, bytes], list[Finding]]:
    """Return the files of a fork, and what was wrong."""
    findings: list[Finding] = []
    sources = {name: Source(name, data=data) for name, data in saved.items()}
    files = fork(sources, old, OTHER, findings.append)
    return {file.path: file.source.read() for file in files}, findings


def test_ids_change_where_files_say_whose_they_are_and_nowhere_else() -> None:
    """Names, folders, headers and changes of them; not what was said, nor a subagent's own id."""
    said = prompt(f'my "sessionId":"{ID}" is in ~/.gemini/tmp/w/tool-outputs/session-{ID}/x.txt')
    call = answer(toolCalls=[{"id": "a", "args": {"sessionId": ID}, "agentId": "a1b2c3"}])
    changes = [{"$set": {"sessionId": ID, "messages": [said, call]}}, header()]
    main = log(header(), context(), said, call, *changes, prompt("more", "u2"))
    child = log(header("a1b2c3", "subagent"), said)
    flat = log(header(kind="subagent"), said)
    files, findings = forked(
        {
            f"tmp/w/chats/{NAME}.jsonl": main,
            f"tmp/w/chats/{ID}/a1b2c3.jsonl": child,
            "tmp/w/chats/session-2026-01-02T03-05-6f1b2f4e.jsonl": flat,
            f"tmp/w/tool-outputs/session-{ID}/x.txt": ID.encode(),
        }
    )
    new = [{"$set": {"sessionId": OTHER, "messages": [said, call]}}, header(OTHER)]
    assert findings == []
    assert files == {
        f"tmp/w/chats/{FORKED}.jsonl": log(
            header(OTHER), context(), said, call, *new, prompt("more", "u2")
        ),
        f"tmp/w/chats/{OTHER}/a1b2c3.jsonl": child,
        "tmp/w/chats/session-2026-01-02T03-05-0000000a.jsonl": log(
            header(OTHER, kind="subagent"), said
        ),
        f"tmp/w/tool-outputs/session-{OTHER}/x.txt": ID.encode(),
    }


ONE_LINE = {**header(), "messages": [answer(toolCalls=[{"args": {"sessionId": ID}}])]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (document(prompt(ID), answer()), document(prompt(ID), answer(), sessionId=OTHER)),
        (json.dumps(ONE_LINE).encode(), json.dumps({**ONE_LINE, "sessionId": OTHER}).encode()),
        (document(prompt(ID))[:-9], document(prompt(ID), sessionId=OTHER)[:-9]),
    ],
)  # fmt: skip
def test_a_document_is_forked_too(before: bytes, after: bytes) -> None:
    """Also half of one: what is there is taken."""
    files, findings = forked({f"tmp/w/chats/{NAME}.json": before})
    assert (files, findings) == ({f"tmp/w/chats/{FORKED}.json": after}, [])


def test_older_twins_and_stubs_stay_behind() -> None:
    """The log has all of it."""
    files, _ = forked(
        {
            f"tmp/w/chats/{NAME}.jsonl": TALK,
            f"tmp/w/chats/{NAME}.json": document(prompt("hi"), answer()),
            "tmp/w/chats/session-2026-02-02T00-00-6f1b2f4e.jsonl": STUB,
        }
    )
    assert list(files) == [f"tmp/w/chats/{FORKED}.jsonl"]


@pytest.mark.parametrize("name", ["session-renamed", "session-1795815185553-my-own_i"])
def test_a_name_ends_with_the_new_id(name: str) -> None:
    """Whatever it was."""
    native: Any = "my-own_id"
    files, _ = forked({f"tmp/w/chats/{name}.jsonl": log(header(native), prompt("x"))}, native)
    (path,) = files
    assert path == f"tmp/w/chats/{name.removesuffix('-my-own_i')}-0000000a.jsonl"


def test_a_session_that_is_not_there_has_no_fork() -> None:
    """Its subagents alone are none."""
    assert forked({f"tmp/w/chats/{ID}/a.jsonl": TALK})[0] == {}
