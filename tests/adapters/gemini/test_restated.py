"""A history that is written anew under new ids (docs/clients/gemini.md, "The fold").

The rows are laid out as a declined tool, ``/chat resume`` and ``/restore`` of 0.61.0 write them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gemini_files import header, log
from gemini_reading import read_bytes

from agentsdir.adapters.gemini.follow import GeminiFollower
from agentsdir.formats.blocks import Reducer

TOKENS = {"input": 10, "output": 2, "cached": 4, "thoughts": 1, "tool": 0, "total": 13}
IMAGE = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
CONTEXT = "<session_context>\nToday\n</session_context>"


def user(name: str, *parts: Any, at: str = "01") -> dict[str, Any]:
    """Return a prompt's row, typed at that second."""
    content = [{"text": part} if isinstance(part, str) else part for part in parts]
    stamp = f"2026-11-29T02:02:{at}.000Z"
    return {"id": name, "timestamp": stamp, "type": "user", "content": content}


def model(name: str, text: str, *calls: Any, at: str = "02") -> dict[str, Any]:
    """Return an answer's row."""
    stamp = f"2026-11-29T02:02:{at}.000Z"
    row = {"id": name, "timestamp": stamp, "type": "gemini", "content": text, "tokens": TOKENS}
    return {**row, "toolCalls": list(calls)} if calls else row


def anew(name: str, text: str, *parts: Any) -> dict[str, Any]:
    """Return an answer as the history has it."""
    stamp = "2026-11-29T02:02:50.000Z"
    content = [{"text": text}, *parts]
    return {
        "id": name, "timestamp": stamp, "type": "gemini", "content": content, "tokens": None,
    }  # fmt: skip


def burst(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Return rows, each with a time behind it, and the list of them."""
    moved: dict[str, Any] = {"$set": {"lastUpdated": "2026-11-29T02:02:50.000Z"}}
    return [*(one for row in rows for one in (row, moved)), {"$set": {"messages": list(rows)}}]


def session(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a session's rows with the context that the client sends first."""
    return [header(), {"$set": {"messages": [user("ctx", CONTEXT)]}}, *rows]


def prompts(rows: list[dict[str, Any]], view: Any = "all") -> list[tuple[Any, str, bool]]:
    """Return what was typed, when, and whether it is superseded."""
    return [
        (block["content"], block["timestamp"][17:19], block.get("superseded", False))
        for block in read_bytes(log(*rows)).blocks(view)
        if block["type"] == "user_message"
    ]


def followed(rows: list[dict[str, Any]], path: Path, *, pause: bool = False) -> list[Any]:
    """Return what a follower has at the end that looked after each row, or twice."""
    follower, reducer = GeminiFollower(path, hidden=False), Reducer()
    for row in rows:
        with path.open("ab") as stream:
            stream.write(log(row))
        for _ in range(1 + pause):
            for event in follower.poll():
                reducer.apply(event)
    for event in follower.end():
        reducer.apply(event)
    return reducer.blocks()


CALL = {"functionCall": {"id": "ls__1", "name": "ls", "args": {}}}
GIVEN = {"functionResponse": {"id": "ls__1", "name": "ls", "response": {"output": "a"}}}
DONE = {"id": "ls__1", "name": "ls", "args": {}, "status": "success", "result": [GIVEN]}
DECLINED = [
    *session(
        user("u1", "list it"),
        model("g1", "Listing.", DONE),
        user("r1", GIVEN, at="03"),
        model("g2", "One file.", at="04"),
        user("u2", "remove it", at="10"),
        model("g3", "Removing.", {**DONE, "id": "rm__2", "status": "cancelled"}, at="11"),
    ),
    {"id": "i1", "timestamp": "2026-11-29T02:02:20.000Z", "type": "info", "content": "cancelled"},
    *burst(
        user("n1", CONTEXT, "list it", at="50"),
        anew("n2", "Listing.", CALL),
        user("n3", GIVEN, at="50"),
        anew("n4", "One file."),
    ),
    user("u3", "keep it", at="55"),
    model("g4", "Kept.", at="56"),
]


def test_a_declined_tool_leaves_each_prompt_once_with_its_own_time() -> None:
    """What was declined is superseded; what is written anew is what it was."""
    assert prompts(DECLINED) == [
        ("list it", "01", False), ("remove it", "10", True), ("keep it", "55", False),
    ]  # fmt: skip
    blocks = read_bytes(log(*DECLINED)).blocks("all")
    kinds = [block["type"] for block in blocks if not block.get("hidden")]
    assert kinds.count("assistant_text") == 4
    assert kinds.count("tool_result") == 2


def test_its_lines_and_tokens_add_up() -> None:
    """The rows written anew are folded, and spend nothing."""
    reading = read_bytes(log(*DECLINED))
    assert reading.totals()["folded"] >= 8
    said = [block["usage"]["totalTokens"] for block in reading.blocks("all") if "usage" in block]
    assert sum(said) == reading.sinks[0].usage()["totalTokens"] == 4 * 13


@pytest.mark.parametrize("pause", [False, True])
def test_a_follower_has_it_too(tmp_path: Path, pause: bool) -> None:
    """Rows that may only restate wait until that is clear; what was reported too soon is left."""
    parsed = read_bytes(log(*DECLINED), hidden=False).blocks("all")
    told = followed(DECLINED, tmp_path / "session-1.jsonl", pause=pause)
    ids = [block["id"] for block in parsed]
    extra = [block for block in told if block["id"] not in ids]
    assert all(block["superseded"] for block in extra)
    assert bool(extra) == pause
    assert [block["id"] for block in told if block["id"] in ids] == ids
    for told_one, parsed_one in zip([b for b in told if b["id"] in ids], parsed, strict=True):
        assert told_one.get("superseded", False) == parsed_one.get("superseded", False)


def test_a_saved_chat_brings_back_what_was_left() -> None:
    """A turn that a rewind dropped is live again, at its own time."""
    rows = session(
        user("u1", "one"), model("g1", "1"), user("u2", "two", at="05"), model("g2", "2", at="06"),
        {"$rewindTo": "u2"}, user("u3", "three", at="10"), model("g3", "3", at="11"),
        *burst(user("n1", CONTEXT, "one"), anew("n2", "1"), user("n3", "two"), anew("n4", "2")),
    )  # fmt: skip
    assert prompts(rows) == [("one", "01", False), ("two", "05", False), ("three", "10", True)]


def test_prompts_that_follow_each_other_are_joined_and_told_apart() -> None:
    """A history has no two turns of one role behind each other; a rewind to it drops all."""
    rows = session(
        user("u1", "one"), user("u2", "two", IMAGE, at="05"), model("g1", "1", at="06"),
        user("u3", "three", at="10"), model("g2", "Removing.", DONE, at="11"),
        *burst(user("n1", CONTEXT, "one", "two", IMAGE, at="50"), anew("n2", "1")),
    )  # fmt: skip
    said = [(at, left) for _, at, left in prompts(rows)]
    assert said == [("01", False), ("05", False), ("10", True)]
    rewound = [*rows, {"$rewindTo": "n1"}, user("u4", "four", at="59")]
    assert prompts(rewound, "live") == [("four", "59", False)]


def test_equal_prompts_are_restated_in_their_order() -> None:
    """The first stand for the first, and one more of the same stays as it is."""
    rows = session(
        user("u1", "go on"), model("g1", "1"), user("u2", "go on", at="05"),
        model("g2", "2", at="06"), user("u3", "go on", at="10"), model("g3", "3", DONE, at="11"),
        *burst(user("n1", CONTEXT, "go on"), anew("n2", "1"), user("n3", "go on"), anew("n4", "2")),
        user("u4", "go on", at="55"), model("g4", "4", at="56"),
    )  # fmt: skip
    assert [(at, left) for _, at, left in prompts(rows)] == [
        ("01", False), ("05", False), ("10", True), ("55", False),
    ]  # fmt: skip


def test_what_a_person_types_again_is_another_prompt() -> None:
    """No list follows it that has nothing else."""
    again = [user("u2", "one", at="05"), model("g2", "1", at="06")]
    rows = session(user("u1", "one"), model("g1", "1"), *again)
    assert [at for _, at, _ in prompts(rows)] == ["01", "05"]
    listed = [*rows, {"$set": {"messages": again}}]
    assert [(at, left) for _, at, left in prompts(listed)] == [("01", True), ("05", False)]


def test_another_sessions_saved_chat_is_new_here() -> None:
    """What no message of the file says is a prompt of its own."""
    rows = session(
        user("u1", "one"), model("g1", "1"),
        *burst(user("n1", CONTEXT, "elsewhere", at="50"), anew("n2", "there")),
    )  # fmt: skip
    assert prompts(rows) == [("one", "01", True), ("elsewhere", "50", False)]
