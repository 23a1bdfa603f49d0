"""Recorded `stream-json` output gives the blocks that the transcript gives, and the turn's end."""

from typing import Any

import pytest
from claude_support import balanced, call, lines, of_type, parse, result

pytestmark = pytest.mark.feature("B-01")


def _line(kind: str, uuid: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "uuid": uuid, "session_id": "s", "parent_tool_use_id": None, **more}


def _said(uuid: str, *content: Any, **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 3, "output_tokens": 1}
    message = {"id": "m1", "model": "m", "content": list(content), "usage": usage}
    return _line("assistant", uuid, message=message, **more)


INIT = _line("system", "i1", subtype="init", model="m", claude_code_version="2.1.98")
TEXT = {"type": "text", "text": "hi"}


def test_lines_give_blocks_and_the_result_ends_the_turn() -> None:
    """Later inits and partial messages are hidden; cost stands in the metadata."""
    delta = _line("stream_event", "e1", event={"type": "content_block_delta"})
    ended = _line(
        "result", "r1", subtype="success", is_error=False, result="hi", total_cost_usd=0.5
    )
    sink = parse(lines(INIT, delta, _said("a1", TEXT), ended, {**INIT, "uuid": "i2"}))
    blocks = list(sink.blocks())
    assert [block.get("subtype", block["type"]) for block in blocks] == [
        "session_start", "assistant_text", "session_end",
    ]  # fmt: skip
    assert {block["sessionId"] for block in blocks} == {"s"}
    assert blocks[-1]["metadata"]["total_cost_usd"] == 0.5
    assert (sink.tally.parsed, sink.tally.hidden) == (3, 2)
    assert sink.client_version == "2.1.98"


def test_the_results_counts_replace_the_placeholders() -> None:
    """The lines before it carry the counts of the stream's start; several results add up."""
    counts = {"input_tokens": 3, "output_tokens": 40}
    ended = _line("result", "r1", subtype="success", usage=counts)
    sink = parse(lines(_said("a1", TEXT), ended, {**ended, "uuid": "r2"}))
    assert (sink.usage()["outputTokens"], sink.usage()["exact"]) == (80, True)
    killed = parse(lines(_said("a1", TEXT)))
    assert (killed.usage()["outputTokens"], killed.usage()["exact"]) == (1, False)


def test_a_failed_result_is_an_error_even_if_it_says_success() -> None:
    """The client calls an API error a success with `is_error`."""
    ended = _line("result", "r1", subtype="success", is_error=True, result="API Error: 429")
    (block,) = parse(lines(ended)).blocks()
    assert (block["subtype"], block["message"]) == ("error", "API Error: 429")


def test_a_lone_result_holds_the_answer() -> None:
    """`--output-format json` prints nothing else."""
    sink = parse(lines(_line("result", "r1", subtype="success", result="hi")))
    assert [block["content"] for block in of_type(sink, "assistant_text")] == ["hi"]


def test_an_agents_lines_are_its_thread() -> None:
    """Named by the agent's id where a line gave it before, else by its call's."""
    task = call("t1", "Agent", prompt="look", subagent_type="scout")
    started = _line(
        "system", "s1", subtype="task_started", task_id="abc1", tool_use_id="t1",
        task_type="local_agent",
    )  # fmt: skip
    inner = {**_said("a2", {"type": "text", "text": "seen"}), "parent_tool_use_id": "t1"}
    answer = _line("user", "u1", message={"content": [result("t1", "seen")]})
    for told, name in ((lines(started), "abc1"), (b"", "t1")):
        sink = parse(lines(_said("a1", task)) + told + lines(inner, answer))
        (block,) = of_type(sink, "subagent")
        assert (block["subagentId"], block["status"], block["output"]) == (name, "success", "seen")
        assert sink.conversations[name].parent == "main"
        assert of_type(sink, "assistant_text")[0]["conversationId"] == name
        assert balanced(sink)


def test_the_clients_own_count_is_the_cost_of_the_run() -> None:
    """Subagents' lines carry placeholders; newer clients say what is new since the last result."""
    spent = {
        "inputTokens": 9,
        "outputTokens": 90,
        "cacheReadInputTokens": 0,
        "cacheCreationInputTokens": 0,
    }
    first = _line(
        "result",
        "r1",
        subtype="success",
        usage={"input_tokens": 3, "output_tokens": 40},
        modelUsage={"m": spent},
    )
    sink = parse(lines(INIT, _said("a1", TEXT), first))
    assert (sink.usage()["outputTokens"], sink.usage()["exact"]) == (90, True)
    assert sink.conversations["main"].usage["outputTokens"] == 40
    again = {**first, "uuid": "r2", "model_usage_since_last_result": {}}
    resumed = {**first, "model_usage_since_last_result": {"m": {**spent, "outputTokens": 50}}}
    assert parse(lines(INIT, resumed, again)).usage()["outputTokens"] == 80


def test_a_run_that_was_killed_before_its_answer_cost_at_least_nothing() -> None:
    """It began, and did not say what it spent."""
    assert parse(lines(INIT)).usage()["exact"] is False


@pytest.mark.parametrize(
    ("status", "shown"), [("allowed", 0), ("allowed_warning", 1), ("rejected", 1)]
)
def test_a_rate_limit_shows_when_it_is_near(status: str, shown: int) -> None:
    """The client says with every answer that all is well."""
    event = {
        "type": "rate_limit_event",
        "uuid": "l1",
        "session_id": "s",
        "rate_limit_info": {"status": status},
    }
    sink = parse(lines(event))
    assert len(of_type(sink, "system")) == shown
    assert balanced(sink)
