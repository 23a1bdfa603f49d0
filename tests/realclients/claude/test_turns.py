"""Turns of the real client: what it did is in the log, and the model is sent what it should be."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from claude_api import ClaudeApi
from claude_desk import ClaudeDesk as Desk

# One black pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


def spent(api: ClaudeApi, plan: str) -> dict[str, int]:
    """Return what the API charged for the requests of one plan, by our names."""
    bills = [request.usage for request in api.of(plan)]
    return {
        "inputTokens": sum(bill["input_tokens"] for bill in bills),
        "outputTokens": sum(bill["output_tokens"] for bill in bills),
        "cacheReadTokens": sum(bill["cache_read_input_tokens"] for bill in bills),
        "cacheWriteTokens": sum(bill["cache_creation_input_tokens"] for bill in bills),
    }


def counted(result: dict[str, Any]) -> dict[str, int]:
    """Return the same of a turn's result."""
    return {
        name: result["usage"][name]
        for name in ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")
    }


@pytest.mark.feature("C-02", "B-06", "B-08")
def test_a_turn_is_answered_recorded_and_charged_as_the_client_has_it(any_desk: Desk) -> None:
    """The prompt, the thought and the answer; nothing of the client's own bookkeeping."""
    agent = any_desk.new()
    done = any_desk.send(agent, "hello", "--json")
    assert (done.code, done.json["response"]) == (0, "Good day."), done
    assert any_desk.types(agent) == ["user_message", "thinking", "assistant_text"]
    assert counted(done.json) == spent(any_desk.api, "hello")
    assert done.json["stopReason"] == "end_turn"
    any_desk.sound(agent)


def test_the_answer_is_printed_and_streamed_as_it_comes(desk: Desk) -> None:
    """Deltas while the model speaks, and one complete block of each."""
    agent = desk.new()
    done = desk.ok("send", "--events", agent, desk.ask("hello"))
    told = [event["type"] for event in done.rows]
    assert told.index("text_delta") < len(told) - told[::-1].index("block_complete")
    whole = "".join(e["delta"] for e in done.rows if e["type"] == "text_delta")
    assert whole == "A greeting is wanted.Good day."
    completed = [e["block"]["id"] for e in done.rows if e["type"] == "block_complete"]
    assert completed == [*desk.blocks(agent)]
    assert desk.send(agent, "again").out == "This is the next turn.\n"


def test_the_prompt_is_in_the_log_before_the_model_is_asked(desk: Desk) -> None:
    """Its id is the one that its row gets, so that nothing is logged twice."""
    agent = desk.new()
    desk.send(agent, "hello")
    (prompt, *_), (row, *_) = desk.blocks(agent).values(), desk.parsed(agent).values()
    assert prompt["id"] == row["id"]
    assert prompt["content"] == desk.ask("hello", cwd=desk.work)


@pytest.mark.feature("C-12")
def test_the_work_of_a_turn_is_shown_at_a_terminal(any_desk: Desk) -> None:
    """Each call, with paths as seen from the folder, its outcome, and in the end what it cost."""
    shown = any_desk.watched(any_desk.new(), "tools")
    calls = [line.partition(" ")[2] for line in shown if line.startswith("●")]
    assert calls == [
        "Read(note.txt)",
        "Bash(echo out; echo err >&2; exit 3)",
        "Write(made.txt)",
    ]
    failed = [line for line in shown if "failed" in line]
    assert failed == ["  └ failed: Exit code 3 out err"]
    assert [line for line in shown if line.startswith("∴")]
    assert re.fullmatch(r"3 tool calls · .* s · .*k tokens in · \d+ out · \$0\.\d+", shown[-2])
    delegated = any_desk.watched(any_desk.new(), "delegate")
    assert "● subagent general-purpose: Read the note" in delegated
    assert "    ● Read(note.txt)" in delegated


def test_tools_run_and_their_results_are_paired(any_desk: Desk) -> None:
    """One that reads, one that fails, one that writes."""
    agent = any_desk.new()
    done = any_desk.send(agent, "tools", "--json")
    assert done.json["response"] == "Reading.\n\nThree tools ran."
    blocks = any_desk.blocks(agent).values()
    calls = {b["toolUseId"]: b["toolName"] for b in blocks if b["type"] == "tool_use"}
    results = {b["toolUseId"]: b for b in blocks if b["type"] == "tool_result"}
    assert [*calls.values()] == ["Read", "Bash", "Write"]
    assert [*results] == [*calls]
    assert [bool(one["isError"]) for one in results.values()] == [False, True, False]
    assert (any_desk.work / "made.txt").read_text() == "made\n"
    assert counted(done.json) == spent(any_desk.api, "tools")
    any_desk.sound(agent)


def test_parallel_tools_are_each_answered_once(any_desk: Desk) -> None:
    """Results come in the order in which they are ready."""
    agent = any_desk.new()
    any_desk.send(agent, "parallel")
    blocks = [*any_desk.blocks(agent).values()]
    calls = [b["toolUseId"] for b in blocks if b["type"] == "tool_use"]
    results = [b["toolUseId"] for b in blocks if b["type"] == "tool_result"]
    assert len(calls) == 3
    assert sorted(results) == sorted(calls)
    assert any_desk.said(agent)[-1] == "All three are in."
    any_desk.sound(agent)


@pytest.mark.parametrize("plan", ["delegate", "background"])
def test_a_subagent_has_a_conversation_of_its_own(any_desk: Desk, plan: str) -> None:
    """In the foreground or not, the turn waits for it, and what it did is in the log."""
    agent = any_desk.new()
    done = any_desk.send(agent, plan, "--json")
    assert done.code == 0, done
    blocks = [*any_desk.blocks(agent).values()]
    (child,) = {b["conversationId"] for b in blocks} - {"main"}
    inside = [b["type"] for b in blocks if b["conversationId"] == child and b["type"] != "system"]
    assert inside.count("tool_use") == inside.count("tool_result") == 1
    assert "The note says hello." in any_desk.said(agent)
    assert any(
        b["conversationId"] == "main" and b.get("content") == "The helper reported." for b in blocks
    )
    roles = {one["role"] for one in any_desk.of(agent, "transcript.synced")[-1]["files"]}
    assert {"main", "subagent"} <= roles
    any_desk.sound(agent)


def test_a_second_turn_goes_on_with_the_first(any_desk: Desk) -> None:
    """A process of its own, the same native session, and the model is sent what was said."""
    agent = any_desk.new()
    any_desk.send(agent, "hello")
    native = any_desk.native(agent)
    done = any_desk.send(agent, "again", "--json")
    assert done.json["response"] == "This is the next turn."
    (request,) = any_desk.api.of("again")
    assert "Good day." in request.texts
    assert any("[[hello" in text for text in request.texts)
    assert any_desk.native(agent) == native
    assert counted(done.json) == spent(any_desk.api, "again")
    any_desk.sound(agent)


@pytest.mark.feature("C-03", "C-04", "S-03")
def test_a_suspended_agent_goes_on_where_it_was(desk: Desk) -> None:
    """Nothing but files is kept in between."""
    agent = desk.new()
    desk.send(agent, "hello")
    desk.ok("suspend", agent)
    desk.ok("resume", agent)
    desk.send(agent, "again")
    (request,) = desk.api.of("again")
    assert "Good day." in request.texts
    desk.sound(agent)


@pytest.mark.feature("G-03")
def test_after_a_reset_the_model_is_sent_nothing_of_before(any_desk: Desk) -> None:
    """The agent has a new native session; the old one's transcript stays with it."""
    agent = any_desk.new()
    any_desk.send(agent, "hello")
    before = any_desk.native(agent)
    any_desk.ok("reset", agent)
    assert any_desk.send(agent, "again").code == 0
    (request,) = any_desk.api.of("again")
    assert not any("Good day." in text or "[[hello" in text for text in request.texts)
    assert any_desk.native(agent) != before
    assert any(before in name for name in any_desk.stored_files(agent))
    any_desk.sound(agent)


def test_a_system_prompt_and_a_model_reach_the_client(desk: Desk) -> None:
    """And stay the same in later turns."""
    agent = desk.new("--system", "Speak like a clock.", "--model", "claude-tiny-9")
    desk.send(agent, "hello")
    desk.send(agent, "again")
    for plan in ("hello", "again"):
        (request,) = desk.api.of(plan)
        assert "Speak like a clock." in request.system
        assert request.model == "claude-tiny-9"


def test_without_a_model_the_client_has_its_own(desk: Desk) -> None:
    """Or the one that the user's configuration names."""
    agent = desk.new()
    desk.send(agent, "hello")
    desk.configure(model="claude-configured-1")
    desk.send(agent, "again")
    (first,), (second,) = desk.api.of("hello"), desk.api.of("again")
    assert first.model.startswith("claude")
    assert first.model != second.model == "claude-configured-1"


def test_an_option_reaches_the_client(desk: Desk) -> None:
    """One that cuts the turn short: what was said before that is the answer."""
    agent = desk.new("--option", "max-turns=1")
    done = desk.send(agent, "tools", "--json")
    assert (done.code, done.json["response"]) == (0, "Reading."), done
    assert done.json["stopReason"] == "max_turns"
    desk.sound(agent)


def test_an_image_is_seen_by_the_model(any_desk: Desk, tmp_path: Path) -> None:
    """Our spelling of the part becomes the API's, and comes back as ours."""
    prompt = tmp_path / "prompt.json"
    source = {"type": "base64", "mediaType": "image/png", "data": PIXEL}
    parts = [{"type": "text", "text": any_desk.ask("hello")}, {"type": "image", "source": source}]
    prompt.write_text(json.dumps(parts))
    agent = any_desk.new()
    done = any_desk("send", agent, "--messages", str(prompt))
    assert (done.code, done.out) == (0, "Good day.\n"), done
    (request,) = any_desk.api.of("hello")
    images = [
        part["source"]
        for message in request.messages
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image"
    ]
    assert [image["media_type"] for image in images] == ["image/png"]
    assert base64.b64decode(images[0]["data"]) == base64.b64decode(PIXEL)
    any_desk.sound(agent)


def test_what_was_typed_into_the_client_itself_is_taken_over(any_desk: Desk) -> None:
    """A turn made outside becomes blocks of no turn, before the next prompt."""
    agent = any_desk.new()
    any_desk.send(agent, "hello")
    any_desk.by_hand(any_desk.native(agent), any_desk.ask("reader", cwd=any_desk.work))
    assert any_desk.send(agent, "again").code == 0
    outside = [
        one["block"]["type"] for one in any_desk.of(agent, "block") if one["turn_id"] is None
    ]
    called = ["tool_use", "tool_result", "assistant_text"]
    assert outside == ["user_message", "thinking", "assistant_text", *called]
    (request,) = any_desk.api.of("again")
    assert "The note says hello." in request.texts
    any_desk.sound(agent)


def test_agents_at_work_at_once_do_not_meet(desk: Desk) -> None:
    """Two processes of the client, each with its own session."""
    agents = [desk.new(), desk.new()]
    running = [desk.begin(agents[0], "tools"), desk.begin(agents[1], "parallel")]
    assert [desk.end(one).code for one in running] == [0, 0]
    assert desk.said(agents[0])[-1] == "Three tools ran."
    assert desk.said(agents[1])[-1] == "All three are in."
    for agent in agents:
        desk.sound(agent)


def test_nothing_of_the_users_own_client_leaks_into_the_turn(desk: Desk) -> None:
    """Run from inside of a client, ours is no child of it; the marks name root, agent and turn."""
    desk.shell = {"CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "cli"}
    agent = desk.new()
    desk.send(agent, "surroundings")
    seen = dict(
        line.split("=", 1)
        for line in (desk.work / "environment").read_text().splitlines()
        if "=" in line
    )
    (turn,) = desk.of(agent, "turn.start")
    assert seen["AGENTSDIR_ROOT"] == str(desk.root)
    assert (seen["AGENTSDIR_AGENT"], seen["AGENTSDIR_TURN"]) == (agent, turn["turn_id"])
    assert orjson.dumps(seen).find(b'"CLAUDE_CODE_ENTRYPOINT":"cli"') < 0
