"""What a native session gets of turns that another one ran."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsdir.engine.handoff import LARGEST_HANDOFF, handoff_text


def lines_of(text: str) -> list[dict[str, Any]]:
    """Return the entries of a text."""
    return [orjson.loads(line) for line in text.split("\n") if line.startswith("{")]


def say(stage: Any, paths: Any, number: int, prompt: str, *blocks: dict[str, Any]) -> None:
    """Log a turn as some provider left it."""
    turn, message = f"{'t' * 22}{number:02}", stage.enqueue(paths, prompt)
    start = {"turn_id": turn, "message_ids": [message], "provider": "echo", "attempt": 1}
    stage.append(paths, "turn.start", start)
    for part, fields in enumerate(blocks):
        block = {
            "id": f"{number}:{part}",
            "conversationId": "main",
            "sessionId": "s",
            "timestamp": None,
            "source": None,
            **fields,
        }
        stage.append(paths, "block", {"turn_id": turn, "block": block})
    done = {"turn_id": turn, "response": "", "stop_reason": "end_turn", "usage": None}
    stage.append(paths, "turn.complete", done)
    stage.append(paths, "message.delivered", {"message_id": message, "outcome": "completed"})


def text(content: str) -> dict[str, Any]:
    """Return what an answer is."""
    return {"type": "assistant_text", "content": content}


def test_each_kind_of_block_is_put_in_its_own_words(stage: Any) -> None:
    """Thoughts and notices are not; a subagent's thread is not; what was given up is not."""
    paths = stage.new()
    call = {"type": "tool_use", "toolName": "Bash", "toolUseId": "u", "input": {"command": "ls"}}
    say(
        stage,
        paths,
        1,
        "look",
        {"type": "user_message", "content": "look"},
        {"type": "thinking", "content": "hm"},
        {**call, "status": "error"},
        {"type": "tool_result", "toolUseId": "u", "output": "no", "isError": True},
        {"type": "assistant_text", "content": "child", "conversationId": "child"},
        {"type": "assistant_text", "content": "old", "superseded": True},
        text("It is empty."),
    )
    assert lines_of(handoff_text(paths, "another")) == [
        {"role": "user", "text": "look"},
        {"role": "tool_call", "name": "Bash", "input": {"command": "ls"}},
        {"role": "tool_result", "text": "no", "failed": True},
        {"role": "assistant", "text": "It is empty."},
    ]
    assert handoff_text(paths, stage.state(paths).native["id"]) == ""


def test_the_oldest_is_left_out_where_it_is_too_much(stage: Any) -> None:
    """It says how much; a single text is shortened at its end, and says so too."""
    paths = stage.new()
    for number in range(20):
        say(stage, paths, number, f"prompt {number}", text(f"{number} " + "x" * 40_000))
    told = handoff_text(paths, "another")
    assert len(told.encode()) < LARGEST_HANDOFF + 1024
    entries = lines_of(told)
    assert entries[-2]["text"] == "prompt 19"
    assert entries[-1]["text"].endswith(" characters left out]")
    assert f"{40 - len(entries)} older ones left out" in told


def test_what_was_withdrawn_later_is_not_told(stage: Any) -> None:
    """The client's user went back behind it."""
    paths = stage.new()
    say(stage, paths, 1, "one", text("first"), text("second"))
    gone = {**text("second"), "id": "1:1", "conversationId": "main", "sessionId": "s",
            "timestamp": None, "source": None, "superseded": True}  # fmt: skip
    stage.append(paths, "block", {"turn_id": None, "block": gone})
    assert [entry["text"] for entry in lines_of(handoff_text(paths, "another"))] == ["one", "first"]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(prompt=st.text(), answer=st.text().map("see @/etc/passwd".__add__))
def test_nothing_that_was_said_can_pass_for_something_else(
    stage: Any, prompt: str, answer: str
) -> None:
    """Whatever stands in a text, it is one entry of its own role."""
    paths = stage.new()
    prompt, answer = (t.encode("utf-8", "replace").decode() for t in (prompt, answer))
    say(stage, paths, 1, prompt, text(answer))
    told = handoff_text(paths, "another")
    assert [(entry["role"], entry["text"]) for entry in lines_of(told)] == [
        ("user", prompt),
        ("assistant", answer),
    ]
    assert len(told.split("\n")) == 6
    assert "@" not in told
