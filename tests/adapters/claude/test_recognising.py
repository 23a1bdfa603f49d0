"""Claude's files are recognised by content, and no other client's."""

import json
from pathlib import Path
from typing import Any

import pytest
from claude_support import lines, reader, row, user

from agentsdir.adapters.claude.store import project_folder_name

pytestmark = pytest.mark.feature("B-06")

YES: dict[str, Any] = {
    "user": user("u1", None, "x"),
    "minimal": {"type": "user", "uuid": "u", "parentUuid": None, "message": {}},
    "summary": {"type": "summary", "summary": "s", "leafUuid": "l"},
    "queue": {"type": "queue-operation", "operation": "dequeue", "sessionId": "s"},
    "last prompt": {"type": "last-prompt", "lastPrompt": "p", "sessionId": "s"},
    "snapshot": {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    "stdout": {"type": "system", "subtype": "init", "session_id": "s"},
    "json result": {"type": "result", "subtype": "success", "session_id": "s", "result": "r"},
}
NO: dict[str, Any] = {
    "gemini header": {"sessionId": "s", "projectHash": "h", "startTime": "t"},
    "gemini message": {"id": "1", "timestamp": "t", "type": "user", "content": "x"},
    "gemini stdout": {"type": "init", "session_id": "s", "model": "m"},
    "gemini result": {"type": "result", "session_id": "s", "status": "success"},
    "codex": {"timestamp": "t", "type": "session_meta", "payload": {}},
    "our event": {"type": "block_complete", "blockId": "1", "block": {}, "conversationId": "main"},
    "our block": {"type": "user_message", "id": "1", "conversationId": "main", "sessionId": "s"},
    "todos": [{"content": "c", "status": "pending", "activeForm": "a"}],
    "prompt history": {"display": "d", "timestamp": 1, "project": "/p", "sessionId": "s"},
    "live session": {"pid": 1, "sessionId": "s", "cwd": "/w", "kind": "interactive"},
    "sidecar": {"agentType": "general-purpose", "description": "d", "toolUseId": "t"},
    "unknown": {"type": "x", "y": 1},
    "number": 7,
}


@pytest.mark.parametrize("value", YES.values(), ids=YES)
def test_claude_rows_are_recognised(value: Any) -> None:
    """Also after a BOM, NULs, junk, and rows that say nothing."""
    line = json.dumps(value).encode() + b"\n"
    for before in (b"", b"\xef\xbb\xbf", b"\0" * 300, b"junk {\n", b'{"type":"x"}\n', b"\n\n"):
        assert reader().detect(before + line, "")


@pytest.mark.parametrize("value", NO.values(), ids=NO)
def test_other_files_are_not(value: Any) -> None:
    """Whatever they are called."""
    for indent in (None, 2):
        head = json.dumps(value, indent=indent).encode()
        assert not reader().detect(head, f"{'0' * 8}.jsonl")


def test_nothing_and_noise_are_not() -> None:
    """Empty, blank and binary heads belong to no client."""
    for head in (b"", b"\n", b"\0" * 100, b"{", b"hello\n", b"\xff\xfe{}"):
        assert not reader().detect(head, "x.jsonl")


@pytest.mark.parametrize(
    "value",
    [
        user("u1", None, "x" * 200_000),
        {"type": "queue-operation", "sessionId": "s", "content": "x" * 200_000},
        {"type": "user", "session_id": "s", "message": {"content": "x" * 200_000}},
    ],
)
def test_a_first_row_longer_than_the_head_is_recognised(value: Any) -> None:
    """A pasted image easily makes one."""
    assert reader().detect(lines(value)[:65536], "")
    other = {"sessionId": "s", "projectHash": "h", "messages": ["x" * 200_000]}
    assert not reader().detect(lines(other)[:65536], "")


def test_a_long_first_row_of_a_child_still_makes_a_child() -> None:
    """Its beginning says whose it is."""
    from agentsdir.formats.source import Source

    first = row("user", "u1", None, message={"content": "x" * 200_000})
    first = {"parentUuid": None, "isSidechain": True, "agentId": "abc1", **first}
    first["isSidechain"] = True
    (files,) = reader().discover([Source("-", data=lines(first))])
    assert files.transcripts[0].role == "subagent"


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/me/my_app/.x", "-home-me-my-app--x"),
        ("C:\\Users\\me\\.local\\bin", "C--Users-me--local-bin"),
        ("/w/é", "-w--"),
        ("/w/e\u0301", "-w--"),
        ("/w/🙂", "-w---"),
        ("/A b", "-A-b"),
    ],
)
def test_folders_are_named_as_the_client_names_them(cwd: str, name: str) -> None:
    """By UTF-16 units, after composition, without collapsing runs."""
    assert project_folder_name(cwd) == name


def test_long_folder_names_are_cut_and_hashed() -> None:
    """To 200 characters, a hyphen, and a hash that tells them apart."""
    one, two = (
        project_folder_name("/" + "a" * 300 + "1"),
        project_folder_name("/" + "a" * 300 + "2"),
    )
    assert one[:201] == two[:201] == "-" + "a" * 199 + "-"
    assert one != two


def test_the_configured_folder_wins_over_home() -> None:
    """An empty setting is none."""
    home, cwd = Path("/home/me"), Path("/w/p")
    paths = reader().paths(home, cwd, {"CLAUDE_CONFIG_DIR": "/cfg"})
    assert (paths.storage, paths.transcripts) == (Path("/cfg"), Path("/cfg/projects/-w-p"))
    assert reader().paths(home, cwd, {"CLAUDE_CONFIG_DIR": ""}).storage == home / ".claude"
