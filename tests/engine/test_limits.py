"""What ends a turn that its provider would go on with: model calls, and time (D25, D28)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentsdir.engine.dispatcher import send_message
from agentsdir.engine.inbox import Message, text_message
from agentsdir.engine.limits import DEFAULT_MAX_TICKS, TickCounter, limit_of
from agentsdir.engine.turn import TurnOptions
from agentsdir.formats import blocks
from agentsdir.formats.blocks import MAIN
from agentsdir.formats.errors import ProviderError


def event(kind: str, number: int, message: str = "", conversation: str = MAIN) -> dict[str, Any]:
    """Return the event of one whole block."""
    block = {"type": kind, "id": f"b{number}", "conversationId": conversation}
    if message:
        block["messageId"] = message
    return blocks.block_complete(f"h{number}", block)


def loop(path: Path, calls: int, said: str = "") -> str:
    """Write a script whose model calls a tool so many times, and then answers."""
    lines = []
    if said:
        text = {"type": "assistant_text", "id": "said", "content": said}
        lines.append({"type": "block_complete", "blockId": "said", "block": text})
    for number in range(calls):
        call = {"type": "tool_use", "id": f"c{number}", "toolName": "T", "toolUseId": f"u{number}",
                "input": {}, "status": "success"}  # fmt: skip
        result = {"type": "tool_result", "id": f"r{number}", "toolUseId": f"u{number}",
                  "output": "ok", "isError": False}  # fmt: skip
        lines += [
            {"type": "block_complete", "blockId": block["id"], "block": block}
            for block in (call, result)
        ]
    text = {"type": "assistant_text", "id": "end", "content": "done"}
    lines.append({"type": "block_complete", "blockId": "end", "block": text})
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return str(path)


@pytest.mark.feature("T-09")
def test_what_was_said_before_the_limit_is_the_answer(stage: Any, tmp_path: Path) -> None:
    """The call that would have been one too many leaves nothing."""
    paths = stage.script(loop(tmp_path / "loop", DEFAULT_MAX_TICKS, "I begin."))
    result = stage.send(paths)
    assert (result.response, result.stop_reason) == ("I begin.", "max_ticks")
    complete = stage.log(paths)[-2]
    assert (complete["event"], complete["data"]["stop_reason"]) == ("turn.complete", "max_ticks")
    calls = [
        record
        for record in stage.log(paths)
        if record["event"] == "block" and record["data"]["block"]["type"] == "tool_use"
    ]
    assert len(calls) == DEFAULT_MAX_TICKS


@pytest.mark.feature("T-09")
@pytest.mark.feature("T-08")
def test_a_turn_that_only_called_tools_fails_at_the_limit(stage: Any, tmp_path: Path) -> None:
    """A person hears so; the next message is looked at as ever."""
    person = {"connector": "telegram", "user": "42", "channel": "42"}
    paths = stage.script(loop(tmp_path / "loop", 3), max_ticks=3, **person)
    with pytest.raises(ProviderError) as failed:
        stage.send(paths)
    assert failed.value.kind == "max-ticks"
    (said,) = [r["data"]["text"] for r in stage.log(paths) if r["event"] == "outgoing"]
    assert said == "Tool execution limit reached."
    assert [m["messageId"] for m in stage.state(paths).pending] == []
    (tmp_path / "loop").write_text("")
    assert stage.send(paths).outcome == "completed"


def test_a_turn_of_as_many_calls_as_it_may_take_is_whole(stage: Any, tmp_path: Path) -> None:
    """The limit is what is allowed, not what is forbidden."""
    paths = stage.script(loop(tmp_path / "loop", 3), max_ticks=4)
    result = stage.send(paths)
    assert (result.response, result.stop_reason) == ("done", "end_turn")


def test_a_program_is_limited_only_where_that_is_asked_for(
    stage: Any, program: Callable[..., str]
) -> None:
    """It is asked to end, and what it still leaves is kept."""
    body = """
for n in range(12):
    yield self.on_disk("assistant_text", f"t{n}", content=f"text {n}")
    yield self.on_disk("tool_result", f"r{n}", toolUseId=f"u{n}", output="ok", isError=False)
"""
    left = 'yield self.on_disk("assistant_text", "left", content="was stopped")'
    name = program(body=body, interrupt=left)
    assert stage.send(stage.new(provider=name)).response.endswith("text 11")
    paths = stage.new(provider=name, max_ticks=2)
    result = stage.send(paths)
    assert (result.response, result.stop_reason) == ("text 0\n\ntext 1", "max_ticks")
    texts = [r["data"]["block"].get("content") for r in stage.log(paths) if r["event"] == "block"]
    assert texts[-1] == "was stopped"


def test_calls_are_distinguished_by_message_or_by_what_stands_between() -> None:
    """Parallel calls of one message are one; a subagent's are none; a block seen again is none."""
    ticks = TickCounter(None)
    for one in (
        event("user_message", 0),
        event("thinking", 1),
        event("tool_use", 2),
        event("tool_use", 3),
        event("tool_result", 4),
        event("tool_use", 2),
        event("assistant_text", 5, conversation="child"),
    ):
        ticks.is_beyond(one)
    assert ticks.count == 1
    for one in (
        event("tool_use", 6, "m1"),
        event("tool_result", 7),
        event("tool_use", 8, "m1"),
        event("tool_result", 9),
        event("assistant_text", 10, "m2"),
    ):
        ticks.is_beyond(one)
    assert ticks.count == 3


@pytest.mark.parametrize("said", [0, -1, "5", True, None, 2.5])
def test_a_limit_that_makes_no_sense_is_none(said: Any) -> None:
    """A log may hold anything; no turn is to be cut short for it."""
    assert limit_of({"max_ticks": said}, runs_program=False) == DEFAULT_MAX_TICKS
    assert limit_of({"max_ticks": said}, runs_program=True) is None


SLOW = """
import time
yield from self.begun("answer", "half of an ans")
time.sleep(600)
"""


@pytest.mark.parametrize("timeout", [0.05, 0.7])
def test_a_turn_is_ended_when_its_time_is_over(
    stage: Any, program: Callable[..., str], timeout: float
) -> None:
    """What was said is kept, only the sender gets an error, and no provider stands in."""
    person = {"connector": "telegram", "user": "42", "channel": "42"}
    name = program(body=SLOW)
    paths = stage.new(provider=name, fallbacks=("echo",), **person)
    sender = TurnOptions(lambda _event: None, timeout=timeout)
    with pytest.raises(ProviderError) as failed:
        send_message(stage.services, paths, Message(text_message("hi")), sender)
    assert failed.value.kind == "turn-timeout"
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]
    aborted, delivered = (record["data"] for record in stage.log(paths)[-2:])
    assert (aborted["reason"], delivered["outcome"]) == ("timeout", "aborted")
    assert "outgoing" not in stage.events(paths)
    assert "provider.fallback" not in stage.events(paths)
    texts = [r["data"]["block"].get("content") for r in stage.log(paths) if r["event"] == "block"]
    assert texts[-1] == "half of an ans"
    program()
    assert stage.send(paths).outcome == "completed"


def test_the_time_is_that_of_all_attempts(
    stage: Any, plugin: Callable[..., str], program: Callable[..., str]
) -> None:
    """A stand-in has what the first provider left of it."""
    down = 'raise ProviderError("try later", kind="rate-limited")'
    paths = stage.new(provider=plugin("first", body=down), fallbacks=(program(body=SLOW),))
    sender = TurnOptions(lambda _event: None, timeout=0.2)
    with pytest.raises(ProviderError) as failed:
        send_message(stage.services, paths, Message(text_message("hi")), sender)
    assert failed.value.kind == "turn-timeout"
    assert stage.events(paths)[-3:] == ["turn.aborted", "native.changed", "message.delivered"]


def test_who_is_asked_to_end_between_two_attempts_ends_before_the_next(
    stage: Any, plugin: Callable[..., str], program: Callable[..., str]
) -> None:
    """The request came while the first provider failed: there was no time to hear of it."""
    body = """
from agentsdir.formats.store.agent import write_agent
from agentsdir.formats.store.layout import Layout
marks = self.host.marks
paths = Layout(Path(marks["AGENTSDIR_ROOT"])).agent(marks["AGENTSDIR_AGENT"])
with write_agent(paths) as writer:
    asked = {"turn_id": marks["AGENTSDIR_TURN"], "reason": "interrupt"}
    writer.append("abort.requested", asked, self.spec.now())
raise ProviderError("try later", kind="rate-limited")
"""
    paths = stage.new(provider=program(body=body), fallbacks=(plugin("second"),))
    with pytest.raises(KeyboardInterrupt):
        stage.send(paths)
    assert "provider.fallback" not in stage.events(paths)
    assert stage.events(paths)[-2:] == ["turn.aborted", "message.delivered"]
