"""Forms at the rim: ids used again, messages without ids, look-alikes, reports, lost parents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gemini_reading import read_bytes

from agentsdir.adapters import registry

SESSION = "11111111-0000-4000-8000-000000000001"
HEADER = {"sessionId": SESSION, "projectHash": "ab" * 32, "kind": "main"}
AT = "2026-01-02T03:04:05.000Z"


def _lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _owner(data: bytes) -> list[str]:
    return [one.name for one in registry.built_in() if one.reader and one.reader.detect(data, "x")]


def _told(data: bytes, view: Any = "live") -> list[tuple[str, Any]]:
    return [
        (b["type"], b.get("content", b.get("output", b.get("input", b.get("message")))))
        for b in read_bytes(data, hidden=False).blocks(view)
    ]


def _qwen(uuid: str, kind: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    role = "model" if kind == "assistant" else "user"
    return {
        "uuid": uuid, "sessionId": SESSION, "timestamp": AT, "type": kind, "cwd": "/w",
        "version": "0.17.0", "message": {"role": role, "parts": list(parts)}, **fields,
    }  # fmt: skip


def _call(n: int) -> dict[str, Any]:
    return {"functionCall": {"id": "call_0", "name": "run", "args": {"n": n}}}


def _answer(text: str) -> dict[str, Any]:
    return {"functionResponse": {"id": "call_0", "name": "run", "response": {"output": text}}}


CALLED_TWICE = [
    ("user_message", "go"),
    ("tool_use", {"n": 1}),
    ("tool_result", "one"),
    ("tool_use", {"n": 2}),
    ("tool_result", "two"),
    ("assistant_text", "end"),
]


def test_a_call_id_that_is_used_again_is_another_call_in_qwens_rows_and_saved_chats() -> None:
    """Some providers number the calls of each round anew."""
    said = [
        ("user", {"text": "go"}), ("assistant", _call(1)), ("tool_result", _answer("one")),
        ("assistant", _call(2)), ("tool_result", _answer("two")), ("assistant", {"text": "end"}),
    ]  # fmt: skip
    rows = [
        _qwen(str(at), kind, part, parentUuid=str(at - 1) if at else None)
        for at, (kind, part) in enumerate(said)
    ]
    assert _told(_lines(*rows)) == CALLED_TWICE
    chat = [
        {"role": "model" if kind == "assistant" else "user", "parts": [part]} for kind, part in said
    ]
    assert _told(json.dumps(chat).encode()) == CALLED_TWICE


@pytest.mark.parametrize("form", ["qwen", "chat"])
@pytest.mark.parametrize("second", [1, 2])
def test_calls_of_one_turn_that_share_an_id_have_each_its_own_result(
    form: str, second: int
) -> None:
    """In the order of the calls, whether these are equal or not."""
    said = [
        ("user", [{"text": "go"}]), ("assistant", [_call(1), _call(second)]),
        ("tool_result", [_answer("one"), _answer("two")]), ("assistant", [{"text": "end"}]),
    ]  # fmt: skip
    chat = [
        {"role": "model" if kind == "assistant" else "user", "parts": parts} for kind, parts in said
    ]
    rows = [
        _qwen(str(at), kind, *parts, parentUuid=str(at - 1) if at else None)
        for at, (kind, parts) in enumerate(said)
    ]
    reading = read_bytes(json.dumps(chat).encode() if form == "chat" else _lines(*rows))
    uses = [b for b in reading.blocks() if b["type"] == "tool_use"]
    assert [(use["input"], use["status"]) for use in uses] == [
        ({"n": 1}, "success"), ({"n": second}, "success"),
    ]  # fmt: skip
    results = [b["output"] for b in reading.blocks() if b["type"] == "tool_result"]
    assert results == ["one", "two"]
    assert "orphan-result" not in reading.findings


@pytest.mark.parametrize("second", [1, 2])
@pytest.mark.parametrize("restated", [False, True])
def test_calls_of_one_message_that_share_an_id_have_each_its_own_result(
    second: int, restated: bool
) -> None:
    """Also when a resume tells them again as parts, with the results in a turn of their own."""
    calls = [
        {"id": "call_0", "name": "run", "args": {"n": n}, "status": "success",
         "result": [_answer(text)]}
        for n, text in ((1, "one"), (second, "the other, longer"))
    ]  # fmt: skip
    answers = [_answer("one"), _answer("the other, longer")]
    rows: list[Any] = [
        HEADER,
        {"id": "u", "timestamp": AT, "type": "user", "content": "go"},
        {"id": "g", "timestamp": AT, "type": "gemini", "content": "", "toolCalls": calls},
        {"id": "r", "timestamp": AT, "type": "user", "content": answers},
    ]
    if restated:
        again = {"id": "g", "type": "gemini", "content": [_call(1), _call(second)]}
        rows.append({"$set": {"messages": [rows[1], again, {**rows[3], "id": "r2"}]}})
    assert _told(_lines(*rows), "all") == [
        ("user_message", "go"), ("tool_use", {"n": 1}), ("tool_result", "one"),
        ("tool_use", {"n": second}), ("tool_result", "the other, longer"),
    ]  # fmt: skip


def test_an_id_that_calls_use_again_where_they_are_parts_alone_is_another_call() -> None:
    """No record of the client's says that the second restates the first; a list does."""
    rows: list[Any] = [
        {"id": "u", "timestamp": AT, "type": "user", "content": "go"},
        {"id": "g1", "timestamp": AT, "type": "gemini", "content": [_call(1)]},
        {"id": "r1", "timestamp": AT, "type": "user", "content": [_answer("one")]},
        {"id": "g2", "timestamp": AT, "type": "gemini", "content": [_call(2)]},
        {"id": "r2", "timestamp": AT, "type": "user", "content": [_answer("two")]},
        {"id": "g3", "timestamp": AT, "type": "gemini", "content": "end"},
    ]
    assert _told(_lines(HEADER, *rows)) == CALLED_TWICE
    again = [{**row, "id": f"n{row['id']}"} for row in rows]
    assert _told(_lines(HEADER, *rows, {"$set": {"messages": again}}), "all") == CALLED_TWICE


def test_a_result_that_one_turn_tells_twice_is_no_orphan() -> None:
    """Some resumes replay it."""
    call = {"id": "call_0", "name": "run", "args": {"n": 1}, "status": "success",
            "result": [_answer("one")]}  # fmt: skip
    rows = [
        {"id": "u", "timestamp": AT, "type": "user", "content": "go"},
        {"id": "g", "timestamp": AT, "type": "gemini", "content": "", "toolCalls": [call]},
        {"id": "r", "timestamp": AT, "type": "user", "content": [_answer("one"), _answer("one")]},
    ]
    reading = read_bytes(_lines(HEADER, *rows))
    assert _told(_lines(HEADER, *rows)) == CALLED_TWICE[:3]
    assert reading.findings == []


def test_a_call_that_a_rewind_of_qwens_left_unanswered_is_made_again_on_the_branch() -> None:
    """Its id and its arguments are the same, and it is no repetition."""
    rows = [
        _qwen("u", "user", {"text": "go"}, parentUuid=None),
        _qwen("a", "assistant", _call(1), parentUuid="u"),
        _qwen("b", "assistant", _call(1), parentUuid="u"),
        _qwen("t", "tool_result", _answer("one"), parentUuid="b"),
    ]
    assert _told(_lines(*rows)) == CALLED_TWICE[:3]


def test_calls_of_one_id_keep_their_results_when_a_resume_restates_them_under_new_ids() -> None:
    """The longer result of the first is not taken for that of the second."""

    def made(message_id: str, n: int, output: str) -> list[dict[str, Any]]:
        call = {"id": "call_0", "name": "run", "args": {"n": n}, "status": "success",
                "result": [_answer(output)]}  # fmt: skip
        return [
            {"id": f"g{message_id}", "timestamp": AT, "type": "gemini", "content": "",
             "toolCalls": [call]},
            {"id": f"r{message_id}", "timestamp": AT, "type": "user",
             "content": [_answer(output)]},
        ]  # fmt: skip

    first = [
        {"id": "u", "timestamp": AT, "type": "user", "content": [{"text": "go"}]},
        *made("1", 1, "the first and longer one"),
        *made("2", 2, "two"),
        {"id": "e", "timestamp": AT, "type": "gemini", "content": "end"},
    ]
    again = [
        {"id": "q0", "timestamp": AT, "type": "user", "content": [{"text": "go"}]},
        {"id": "q1", "timestamp": AT, "type": "gemini", "content": [_call(1)]},
        {"id": "q2", "timestamp": AT, "type": "user",
         "content": [_answer("the first and longer one")]},
        {"id": "q3", "timestamp": AT, "type": "gemini", "content": [_call(2)]},
        {"id": "q4", "timestamp": AT, "type": "user", "content": [_answer("two")]},
        {"id": "q5", "timestamp": AT, "type": "gemini", "content": [{"text": "end"}]},
    ]  # fmt: skip
    wanted = [*CALLED_TWICE[:2], ("tool_result", "the first and longer one"), *CALLED_TWICE[3:]]
    assert _told(_lines(HEADER, *first)) == wanted
    assert _told(_lines(HEADER, *first, {"$set": {"messages": again}}), "all") == wanted


def test_equal_messages_of_a_document_without_ids_are_several() -> None:
    """A person may say yes twice."""
    messages = [{"type": "user", "content": "yes"}, {"type": "gemini", "content": "one"}] * 2
    document = json.dumps({**HEADER, "messages": messages}, indent=2).encode()
    assert [said for _, said in _told(document)] == ["yes", "one", "yes", "one"]
    assert read_bytes(document).totals()["parsed"] == 4


@pytest.mark.parametrize("layout", ["document", "log"])
def test_parts_mean_what_content_does(layout: str) -> None:
    """Some programs name them as the API does."""
    messages = [
        {"id": "u", "timestamp": AT, "type": "user", "parts": [{"text": "hi"}]},
        {"id": "g", "timestamp": AT, "type": "gemini", "parts": [{"text": "Hello"}]},
    ]
    document = json.dumps({**HEADER, "messages": messages}, indent=2).encode()
    data = document if layout == "document" else _lines(HEADER, *messages)
    assert _told(data) == [("user_message", "hi"), ("assistant_text", "Hello")]


def test_a_subagent_whose_file_is_not_there_makes_the_tokens_a_lower_bound() -> None:
    """What it spent, no file says."""
    call = {"id": "i", "name": "invoke_agent", "args": {"agent_name": "h", "prompt": "do"},
            "status": "success", "agentId": "c1", "result": [_answer("said")]}  # fmt: skip
    counts = {"input": 10, "output": 2, "cached": 0, "thoughts": 0, "tool": 0, "total": 12}
    turn = {"timestamp": AT, "type": "gemini", "tokens": counts, "model": "m"}
    rows = [
        {"id": "u", "timestamp": AT, "type": "user", "content": [{"text": "go"}]},
        {"id": "g", "content": "", "toolCalls": [call], **turn},
        {"id": "h", "content": "end", **turn},
    ]
    assert read_bytes(_lines(HEADER, *rows)).sinks[0].usage()["exact"] is False
    del rows[1]["toolCalls"][0]["agentId"]
    rows[1]["toolCalls"][0]["name"] = "run"
    assert read_bytes(_lines(HEADER, *rows)).sinks[0].usage()["exact"] is True


def test_a_prompt_log_of_the_first_clients_is_read() -> None:
    """They named a session by a number."""
    entry = {"sessionId": 1750000000, "messageId": 0, "type": "user", "message": "hello",
             "timestamp": AT}  # fmt: skip
    (block,) = read_bytes(json.dumps([entry], indent=2).encode(), "logs.json").blocks()
    assert (block["content"], block["sessionId"]) == ("hello", "1750000000")


def test_a_report_of_a_client_that_names_no_session_is_read() -> None:
    """Up to 0.11 it has an answer and statistics alone."""
    report = {"response": "hello", "stats": {"models": {}, "tools": {}}}
    assert _owner(json.dumps(report, indent=2).encode()) == ["gemini"]
    assert _told(json.dumps(report).encode())[0] == ("assistant_text", "hello")


def test_what_a_hook_adds_to_a_prompt_of_qwens_is_hidden() -> None:
    """Only as a last part of its own: the same words alone were typed."""
    hooks = {"text": "<qwen:user-prompt-submit-context>\nX\n</qwen:user-prompt-submit-context>"}
    given = {"parentUuid": None, "provenance": "real_user"}
    shown = {"systemPayload": {"displayText": "look", "hookContext": "X"}}
    assert _told(_lines(_qwen("a", "user", {"text": "look"}, hooks, **given, **shown))) == [
        ("user_message", "look")
    ]
    assert _told(_lines(_qwen("a", "user", hooks, **given))) == [("user_message", hooks["text"])]


def test_what_was_typed_during_a_turn_of_qwens_is_shown_without_the_clients_words() -> None:
    """`displayText` says what it was."""
    row = _qwen("a", "user", {"text": "\n[User message received during tool execution]: save"},
                parentUuid=None, subtype="mid_turn_user_message",
                systemPayload={"displayText": "save"})  # fmt: skip
    assert _told(_lines(row)) == [("user_message", "save")]


@pytest.mark.parametrize("who", ["goal_control", "goal_runtime", "system"])
def test_what_qwen_says_in_the_users_place_is_no_prompt(who: str) -> None:
    """It is shown all the same: an answer follows."""
    row = _qwen("a", "user", {"text": "Keep going"}, parentUuid=None, provenance=who)
    assert _told(_lines(row)) == [("system", "Keep going")]


def _talk(*parents: Any) -> bytes:
    rows = []
    for name, parent in zip("abcd", parents, strict=False):
        said = {} if parent is ... else {"parentUuid": parent}
        rows.append(_qwen(name, "user" if name in "ac" else "assistant", {"text": name}, **said))
    return _lines(*rows)


@pytest.mark.parametrize(
    ("parents", "live", "findings"),
    [
        ((..., ..., ..., ...), "abcd", []),
        ((None, None, None, None), "abcd", []),
        ((None, "a", ..., "c"), "abcd", []),
        ((None, "a", "LOST", "c"), "abcd", ["missing-parent"]),
        ((None, "a", None, "c"), "cd", ["null-parent"]),
        ((None, "a", "a", "c"), "acd", []),
    ],
)
def test_rows_of_qwens_hang_together_where_parents_are_not_said(
    parents: Any, live: str, findings: list[str]
) -> None:
    """The row before counts for a parent that is lost or not said; `null` is a new beginning."""
    reading = read_bytes(_talk(*parents), hidden=False)
    assert "".join(block["content"] for block in reading.blocks()) == live
    assert len(reading.blocks("all")) == 4
    assert reading.findings == findings


def test_an_export_of_qwens_is_read_in_its_order() -> None:
    """It is not Claude's, and its rows name parents that were left out."""
    data = _lines(
        {"type": "session_metadata", "sessionId": SESSION, "startTime": AT},
        _qwen("a", "user", {"text": "go"}, parentUuid="LOST"),
        {"uuid": "t", "sessionId": SESSION, "timestamp": AT, "type": "tool_call",
         "toolCall": {"toolCallId": "c1", "kind": "read", "title": "a.txt", "status": "failed",
                      "rawInput": {"p": 1}, "content": [
                          {"type": "content", "content": {"type": "text", "text": "no"}}]}},
        {"uuid": "b", "sessionId": SESSION, "timestamp": AT, "type": "assistant",
         "message": {"role": "assistant", "content": "done"}},
    )  # fmt: skip
    assert _owner(data) == ["gemini"]
    assert _told(data) == [
        ("user_message", "go"), ("tool_use", {"p": 1}), ("tool_result", "no"),
        ("assistant_text", "done"),
    ]  # fmt: skip
    (use,) = [b for b in read_bytes(data).blocks() if b["type"] == "tool_use"]
    assert (use["toolName"], use["displayName"], use["status"]) == ("read", "a.txt", "error")
    assert read_bytes(data).findings == []


LOOK_ALIKES = {
    "app log": _lines({"id": "1", "type": "error", "timestamp": AT, "content": "disk full"}),
    "app log of several kinds": _lines(
        *(
            {"id": "1", "type": kind, "timestamp": AT, "content": "x"}
            for kind in ("info", "warning", "error", "user")
        )
    ),
    "chat with text": _lines({"id": "1", "type": "user", "timestamp": AT, "content": "hi"}),
    "todo list": json.dumps([{"id": 1, "type": "user", "text": "buy milk"}], indent=2).encode(),
    "history of something": json.dumps(
        {"history": [{"id": 1, "type": "user", "text": "x"}]}
    ).encode(),
    "mongo": _lines({"$set": {"name": "x"}}, {"$set": {"age": 3}}),
    "mongo with a date": _lines({"$set": {"lastUpdated": AT}}, {"$set": {"lastUpdated": AT}}),
    "mongo with messages": _lines({"$set": {"messages": ["x"]}}, {"$set": {"messages": []}}),
    "package": b'{\n  "name": "x",\n  "version": "1.0.0"\n}\n',
    "notebook": json.dumps(
        {"cells": [{"cell_type": "code", "id": "1", "source": []}], "metadata": {}, "nbformat": 4},
        indent=1,
    ).encode(),
    "chat export": json.dumps(
        [{"title": "t", "mapping": {"a": {"id": "a", "message": None}}}]
    ).encode(),
    "chat api": _lines({"messages": [{"role": "user", "content": "hi"}]}),
    "api contents": _lines({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}),
    "answer of a server": json.dumps({"session_id": "s", "response": "hi"}).encode(),
    "failure of a server": json.dumps({"session_id": "s", "error": {"message": "x"}}).encode(),
    "codex": _lines(
        {"timestamp": AT, "type": "session_meta", "payload": {"id": "s", "cwd": "/w"}},
        {
            "timestamp": AT,
            "type": "response_item",
            "payload": {"type": "message", "role": "user", "content": []},
        },
    ),
    "copilot": _lines(
        {
            "type": "session.start",
            "data": {"sessionId": "s"},
            "id": "1",
            "timestamp": AT,
            "parentId": None,
        },
        {
            "type": "user.message",
            "data": {"content": "hi"},
            "id": "2",
            "timestamp": AT,
            "parentId": "1",
        },
    ),
    "pi": _lines(
        {"type": "session", "version": 3, "id": "s", "timestamp": AT, "cwd": "/w"},
        {
            "type": "message",
            "id": "1",
            "parentId": None,
            "timestamp": AT,
            "message": {"role": "user", "content": "hi"},
        },
    ),
    "cursor": _lines({"role": "user", "message": {"content": [{"type": "text", "text": "hi"}]}}),
    "har": json.dumps({"log": {"version": "1.2", "creator": {}, "entries": []}}, indent=2).encode(),
    "dataset": _lines({"id": "1", "prompt": "p", "completion": "c"}),
    "lines with a session": _lines({"type": "click", "sessionId": "s", "timestamp": AT}),
    "telemetry": _lines(
        {"type": "session_metadata", "sessionId": "s", "timestamp": AT},
        {"type": "user", "sessionId": "s", "timestamp": AT},
    ),
    "messages of a stream": _lines(
        {"type": "message", "timestamp": AT, "role": "user", "content": "x"},
        {"type": "error", "timestamp": AT, "severity": "x", "message": "y"},
    ),
    "nested header": json.dumps(
        {"data": {"sessionId": "s", "projectHash": "h"}}, indent=2
    ).encode(),
    "metrics": _lines({"type": "metadata_update", "conversationId": "c"}),
    "roles": json.dumps([{"role": "user", "permissions": ["read"]}]).encode(),
    "prompt rows of another kind": json.dumps(
        [{"sessionId": "s", "messageId": 1, "type": "email", "message": "hi"}]
    ).encode(),
}


@pytest.mark.parametrize("data", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_a_file_of_a_common_shape_is_refused_by_every_reader(data: bytes) -> None:
    """App logs, lists, exports and other agents' sessions are none of ours."""
    assert _owner(data) == []


def test_a_log_that_lost_its_header_is_known_by_its_rows() -> None:
    """An answer, a list of messages, or a prompt beside the client's mark of the time."""
    prompt = {"id": "u", "timestamp": AT, "type": "user", "content": [{"text": "hi"}]}
    answer = {"id": "g", "timestamp": AT, "type": "gemini", "content": "Hello"}
    assert _owner(_lines(answer)) == ["gemini"]
    assert _owner(_lines({"$set": {"messages": [prompt]}})) == ["gemini"]
    assert _owner(_lines({"$rewindTo": "u"})) == ["gemini"]
    assert _owner(_lines(prompt, {"$set": {"lastUpdated": AT}})) == ["gemini"]
