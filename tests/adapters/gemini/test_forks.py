"""Forks of the client: Qwen Code's rows around the same turns, Bob Shell's other words."""

from __future__ import annotations

import json
from typing import Any

from gemini_reading import Reading, read_bytes
from hypothesis import given
from hypothesis import strategies as st

from agentsdir.adapters import registry

SESSION = "11111111-0000-4000-8000-000000000001"
CALL = {"functionCall": {"id": "c1", "name": "edit", "args": {"file_path": "a"}}}
ANSWER = {"functionResponse": {"id": "c1", "name": "edit", "response": {"output": "edited"}}}
COUNTS = {
    "promptTokenCount": 10,
    "candidatesTokenCount": 5,
    "cachedContentTokenCount": 4,
    "thoughtsTokenCount": 2,
    "totalTokenCount": 15,
}


def _row(uuid: str, parent: str | None, kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "uuid": uuid, "parentUuid": parent, "sessionId": SESSION, "type": kind,
        "timestamp": "2026-01-01T00:00:01.000Z", "cwd": "/w", "version": "0.9.1", **fields,
    }  # fmt: skip


def _turn(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


ROWS = [
    _row("s", None, "system", subtype="session_source", systemPayload={"source": "cli"}),
    _row("u", "s", "user", message=_turn("user", {"text": "go"})),
    _row("a", "u", "assistant", model="m", usageMetadata=COUNTS,
         message=_turn("model", {"text": "Hm.", "thought": True}, {"text": "I edit."}, CALL)),
    _row("r", "a", "tool_result", message=_turn("user", ANSWER),
         toolCallResult={"callId": "c1", "status": "success", "resultDisplay": "1 line"}),
    _row("b", "r", "assistant", model="m", message=_turn("model", {"text": "Done."})),
]  # fmt: skip


def _dumps(rows: list[Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _read(rows: list[Any], *, hidden: bool = False) -> Reading:
    return read_bytes(_dumps(rows), hidden=hidden)


def _owner(data: bytes) -> list[str]:
    return [one.name for one in registry.built_in() if one.reader and one.reader.detect(data, "x")]


def test_qwens_rows_are_not_claudes() -> None:
    """Whichever row comes first."""
    for start in range(len(ROWS)):
        assert _owner(_dumps(ROWS[start:])) == ["gemini"]


def test_qwens_turns_are_read_as_geminis() -> None:
    """Calls have their results, results their display, and thoughts count once."""
    reading = _read(ROWS)
    assert [
        (block["type"], block.get("content", block.get("output"))) for block in reading.blocks()
    ] == [
        ("user_message", "go"),
        ("thinking", "Hm."),
        ("assistant_text", "I edit."),
        ("tool_use", None),
        ("tool_result", "edited"),
        ("assistant_text", "Done."),
    ]
    _, _, text, use, result, _ = reading.blocks()
    assert (text["id"], text["model"], text["messageId"]) == ("a:x", "m", "a")
    assert (use["status"], result["toolUseId"], result["display"]) == ("success", "c1", "1 line")
    usage = reading.sinks[0].usage()
    assert (usage["totalTokens"], usage["outputTokens"], usage["thinkingTokens"]) == (15, 5, 2)
    assert reading.sinks[0].client_version == "0.9.1"
    assert reading.findings == []
    assert reading.totals()["hidden"] == 1


def test_a_rewind_of_qwens_is_a_branch() -> None:
    """What the last row does not descend from is superseded; a lost parent loses nothing."""
    again = _row("u2", "s", "user", message=_turn("user", {"text": "other"}))
    reading = _read([*ROWS, again])
    assert [block["content"] for block in reading.blocks()] == ["other"]
    assert len(reading.blocks("all")) == 7
    assert len(_read(ROWS[1:]).blocks()) == 6
    looped = [_row("x", "y", "user", message=_turn("user", {"text": "1"})),
              _row("y", "x", "user", message=_turn("user", {"text": "2"}))]  # fmt: skip
    assert len(_read(looped).blocks()) == 2


def test_what_the_fork_puts_into_user_rows_is_no_prompt() -> None:
    """Notifications are the client's words; what was typed during a turn is a prompt."""
    text = {"text": "<task-notification>done"}
    told = _row("n", "u", "user", subtype="notification", message=_turn("user", text))
    typed = _row("m", "n", "user", subtype="mid_turn_user_message",
                 message=_turn("user", {"text": "and this"}))  # fmt: skip
    reading = _read([ROWS[1], told, typed], hidden=True)
    seen = [block for block in reading.blocks() if not block.get("hidden")]
    assert [(block["type"], block.get("content", block.get("message"))) for block in seen] == [
        ("user_message", "go"),
        ("system", "<task-notification>done"),
        ("user_message", "and this"),
    ]


def test_bob_shells_answers_are_the_models_and_its_thoughts_are_shown_once() -> None:
    """It writes each thought again and again as it grows, under a type of its own."""
    thoughts = [
        {"subject": "Plan", "description": text, "timestamp": "2026-01-01T00:00:02.000Z"}
        for text in ("first", "first I look", "first I look, then act")
    ]
    rows = [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "u", "type": "user", "content": [{"text": "go"}]},
        {"id": "g", "type": "bob-shell", "content": "Done.", "thoughts": thoughts},
    ]
    for data in (_dumps(rows), json.dumps({**rows[0], "messages": rows[1:]}, indent=2).encode()):
        reading = read_bytes(data)
        assert [(block["type"], block["content"]) for block in reading.blocks()] == [
            ("user_message", "go"),
            ("thinking", "first I look, then act"),
            ("assistant_text", "Done."),
        ]
        assert _owner(data) == ["gemini"]


values = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["u", "a", "r", "user", "assistant"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["parts", "text", "thought", "functionCall", "functionResponse", "id", "name",
             "response", "output", "resultDisplay", "promptTokenCount", "totalTokenCount"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=10,
)  # fmt: skip
names = st.sampled_from(
    ["uuid", "parentUuid", "sessionId", "type", "subtype", "timestamp", "message", "model",
     "usageMetadata", "toolCallResult", "systemPayload"]
)  # fmt: skip


@given(st.lists(st.dictionaries(names, values, max_size=7), max_size=6))
def test_no_shape_of_qwens_rows_raises_or_goes_uncounted(rows: list[dict[str, Any]]) -> None:
    """Any JSON under the known keys gives blocks with unique ids, all of which stay."""
    reading = _read([*ROWS, *rows], hidden=True)
    ids = [block["id"] for block in reading.blocks("all")]
    assert len(ids) == len(set(ids))
    assert {"u:p", "a:x", "a:cc1", "r:rc1"} <= set(ids)
    reading.totals()


def test_rows_whose_ids_are_what_others_would_be_told_apart_by_are_read() -> None:
    """However many: a name that was given is never given again."""
    names = ["a"]
    while len(names) < 1500:
        names.append(f"{names[-1]}~2")
    rows = [_row(name, None, "user", message=_turn("user", {"text": "x"})) for name in names]
    (sink,) = _read([*rows, rows[0], rows[0]]).sinks
    blocks = list(sink.blocks("all"))
    assert len({block["id"] for block in blocks}) == len(blocks) == 1502
