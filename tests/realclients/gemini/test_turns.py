"""Turns of the real client: what it did is in the log, and the model is sent what it should be."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gemini_desk import MODEL, assert_paired
from gemini_desk import GeminiDesk as Desk


def spent(desk: Desk, *plans: str) -> dict[str, int]:
    """Return what the API charged for the requests of some plans, by our names."""
    bills = [request.usage for plan in plans for request in desk.api.of(plan)]
    cached = sum(bill["cachedContentTokenCount"] for bill in bills)
    return {
        "inputTokens": sum(bill["promptTokenCount"] for bill in bills) - cached,
        "cacheReadTokens": cached,
        "outputTokens": sum(
            bill["candidatesTokenCount"] + bill["thoughtsTokenCount"] for bill in bills
        ),
    }


def counted(result: dict[str, Any]) -> dict[str, int]:
    """Return the same of a turn's result."""
    names = ("inputTokens", "cacheReadTokens", "outputTokens")
    return {name: result["usage"][name] for name in names}


def test_a_turn_is_answered_recorded_and_charged_as_the_client_has_it(any_desk: Desk) -> None:
    """The prompt, the thought and the answer; nothing of the context that the client adds."""
    agent = any_desk.new()
    done = any_desk.send(agent, "hello", "--json")
    assert (done.code, done.json["response"]) == (0, "Good day."), done
    assert any_desk.said(agent, "user_message") == [any_desk.ask("hello")]
    assert any_desk.said(agent) == ["Good day."]
    assert len(any_desk.said(agent, "thinking")) == 1
    assert counted(done.json) == spent(any_desk, "hello")
    (request,) = any_desk.api.of("hello")
    assert request.model == MODEL
    any_desk.sound(agent)


def test_the_answer_is_streamed_as_it_comes(desk: Desk) -> None:
    """Deltas while the model speaks, and one complete block of each."""
    agent = desk.new()
    done = desk.ok("send", "--events", agent, desk.ask("hello"))
    whole = "".join(e["delta"] for e in done.rows if e["type"] == "text_delta")
    assert "Good day." in whole
    completed = [e["block"]["id"] for e in done.rows if e["type"] == "block_complete"]
    assert sorted(completed) == sorted(desk.blocks(agent))


def test_tools_run_and_their_results_are_paired(any_desk: Desk) -> None:
    """One that reads, a command that fails, one that writes, and one that fails itself."""
    agent = any_desk.new()
    done = any_desk.send(agent, "tools", "--json")
    assert done.json["response"] == "Reading.\n\nFour tools ran."
    blocks = any_desk.blocks(agent).values()
    calls = [b["toolName"] for b in blocks if b["type"] == "tool_use"]
    results = [b for b in blocks if b["type"] == "tool_result"]
    assert calls == ["read_file", "run_shell_command", "write_file", "read_file"]
    assert [bool(one["isError"]) for one in results] == [False, False, False, True]
    assert "hello from the note" in str(results[0]["output"])
    assert "err" in str(results[1]["output"])
    assert (any_desk.work / "made.txt").read_text() == "made\n"
    assert counted(done.json) == spent(any_desk, "tools")
    any_desk.sound(agent)


@pytest.mark.feature("C-12")
def test_the_work_of_a_turn_is_shown_at_a_terminal(any_desk: Desk) -> None:
    """Each call and its outcome, whichever of its two sources tells them."""
    shown = any_desk.watched(any_desk.new(), "tools")
    calls = [line.partition(" ")[2] for line in shown if line.startswith("●")]
    assert calls == [
        "read_file(note.txt)",
        "run_shell_command(echo out; echo err >&2; exit 3)",
        "write_file(made.txt)",
        "read_file(absent.txt)",
    ]
    assert [line for line in shown if "failed: File not found" in line]
    assert re.fullmatch(r"4 tool calls · .* s · .*k tokens in · \d+ out", shown[-2])
    assert "Four tools ran." in shown


def test_parallel_tools_are_each_answered_once(any_desk: Desk) -> None:
    """The client tells of all results when the last is there."""
    agent = any_desk.new()
    any_desk.send(agent, "parallel")
    blocks = list(any_desk.blocks(agent).values())
    assert sum(b["type"] == "tool_use" for b in blocks) == 3
    assert_paired(blocks)
    assert any_desk.said(agent)[-1] == "All three are in."
    any_desk.sound(agent)


def test_a_subagent_has_a_conversation_of_its_own(any_desk: Desk) -> None:
    """Standard output has nothing of what it does; its file has all."""
    agent = any_desk.new()
    done = any_desk.send(agent, any_desk.delegate, "--json")
    assert done.code == 0, done
    blocks = list(any_desk.blocks(agent).values())
    (child,) = {b["conversationId"] for b in blocks} - {"main"}
    inside = [b["type"] for b in blocks if b["conversationId"] == child]
    assert "thinking" in inside
    assert inside.count("tool_use") == inside.count("tool_result") >= 1
    assert any_desk.said(agent)[-1] == "The helper reported."
    assert counted(done.json) == spent(any_desk, any_desk.delegate, "reader")
    roles = {one["role"] for one in any_desk.of(agent, "transcript.synced")[-1]["files"]}
    assert {"main", "subagent"} <= roles
    any_desk.sound(agent)


def test_a_result_that_was_too_large_is_kept_with_its_file(desk: Desk) -> None:
    """The client puts it beside the session, and so do we."""
    agent = desk.new()
    assert desk.send(agent, "large").code == 0
    (name,) = [name for name in desk.stored_files(agent) if name.startswith("tool-outputs/")]
    assert b"\n19999\n" in desk.stored_files(agent)[name]
    desk.sound(agent)


def test_turns_in_the_minute_in_which_the_session_began_go_on_with_it(any_desk: Desk) -> None:
    """The newer client appends to its own file what wipes the history from it; we keep it."""
    agent = any_desk.new()
    any_desk.send(agent, "tools")
    native = any_desk.native(agent)
    for number in (1, 2):
        sent = any_desk.recalled(agent)
        assert len(sent.contents) >= 2
        for text in ("Reading.", "Four tools ran."):
            assert sent.texts.count(text) == 1, number
        assert any("hello from the note" in text for text in sent.texts)
    assert any_desk.native(agent) == native
    assert any_desk.types(agent).count("tool_use") == 4


def test_turns_in_later_minutes_go_on_with_it(any_desk: Desk) -> None:
    """The newer client leaves a stub of the same id at each, which does not stay."""
    agent = any_desk.new()
    any_desk.send(agent, "tools")
    native = any_desk.native(agent)
    for _ in (1, 2):
        any_desk.later()
        sent = any_desk.recalled(agent)
        assert sent.texts.count("Four tools ran.") == 1
        assert any("hello from the note" in text for text in sent.texts)
    assert sent.texts.count("This is the next turn.") == 1
    assert any_desk.native(agent) == native
    assert any_desk.types(agent).count("tool_use") == 4


def test_a_session_outlives_the_start_of_another_in_its_folder(desk: Desk) -> None:
    """The client deletes, when it starts, what it takes for broken: a session with a stub."""
    agent = desk.new()
    desk.send(agent, "hello")
    desk.later()
    desk.recalled(agent)
    other = desk.new()
    assert desk.send(other, "hello").code == 0
    assert "Good day." in desk.recalled(agent).texts
    desk.sound(other)


def test_a_suspended_agent_goes_on_where_it_was(desk: Desk) -> None:
    """Nothing but files is kept in between."""
    agent = desk.new()
    desk.send(agent, "hello")
    desk.ok("suspend", agent)
    desk.ok("resume", agent)
    assert "Good day." in desk.recalled(agent).texts


def test_after_a_reset_the_model_is_sent_nothing_of_before(desk: Desk) -> None:
    """The agent has a new native session; the old one's transcript stays with it."""
    agent = desk.new()
    desk.send(agent, "hello")
    before = desk.native(agent)
    desk.ok("reset", agent)
    sent = desk.recalled(agent)
    assert not any("Good day." in text or "[[hello" in text for text in sent.texts)
    assert desk.native(agent) != before
    assert any(before[:8] in name for name in desk.stored_files(agent))


def test_a_system_prompt_and_a_model_reach_the_client(desk: Desk) -> None:
    """And stay the same in later turns."""
    agent = desk.new("--system", "Speak like a clock.", "--model", "gemini-tiny-9")
    desk.send(agent, "hello")
    desk.send(agent, "again")
    for plan in ("hello", "again"):
        (request,) = desk.api.of(plan)
        assert request.system.startswith("Speak like a clock.")
        assert request.model == "gemini-tiny-9"
    desk.sound(agent)
    assert list(desk.temporary.glob("agentsdir-*")) == []


def test_without_a_model_the_client_chooses_one(desk: Desk) -> None:
    """It asks another model which; that is no turn, and nothing of it is in the log."""
    del desk.settings["model"]
    desk.configure()
    agent = desk.new()
    assert desk.send(agent, "hello").out == "Good day.\n"
    assert desk.api.of("hello")[-1].model
    desk.sound(agent)


def test_a_file_that_the_prompt_names_is_seen_by_the_model(desk: Desk) -> None:
    """The client puts its content into the prompt; the log has the prompt as it was given."""
    agent = desk.new()
    prompt = f"Look at @note.txt first. {desk.ask('hello')}"
    assert desk.ok("send", agent, prompt).out == "Good day.\n"
    (request,) = desk.api.of("hello")
    assert any("hello from the note" in text for text in request.texts)
    assert desk.said(agent, "user_message") == [prompt]
    desk.sound(agent)


@pytest.mark.parametrize("begin", ["/", "!", "--help "])
def test_a_prompt_that_looks_like_a_command_is_a_prompt(desk: Desk, begin: str) -> None:
    """Nothing of it is run, and no option is made of it."""
    agent = desk.new()
    prompt = f"{begin}nothing {desk.ask('hello')}"
    done = desk("send", agent, "--", prompt)
    assert (done.code, done.out) == (0, "Good day.\n"), done
    assert desk.said(agent, "user_message") == [prompt]
    desk.sound(agent)


def test_what_was_typed_into_the_client_itself_is_taken_over(any_desk: Desk) -> None:
    """Turns made outside become blocks of no turn, before the next prompt."""
    agent = any_desk.new()
    any_desk.send(agent, "hello")
    native = any_desk.native(agent)
    any_desk.by_hand(native, any_desk.ask("tools"))
    any_desk.later()
    any_desk.by_hand(native, any_desk.ask("again"))
    # A client that resumes leaves a stub for each minute in which one was started, and the minute
    # may have changed between the first two runs, too.
    assert (len(any_desk.chats(native)) > 1) is not any_desk.keeps_documents
    sent = any_desk.recalled(agent)
    outside = [
        one["block"]["type"] for one in any_desk.of(agent, "block") if one["turn_id"] is None
    ]
    assert outside.count("user_message") == 2
    assert outside.count("tool_use") == outside.count("tool_result") == 4
    assert sent.texts.count("Four tools ran.") == 1


def test_agents_at_work_at_once_do_not_meet(desk: Desk) -> None:
    """Two processes of the client in one folder, each with its own session."""
    agents = [desk.new(), desk.new()]
    running = [desk.begin(agents[0], "tools"), desk.begin(agents[1], "parallel")]
    assert [desk.end(one).code for one in running] == [0, 0]
    assert desk.said(agents[0])[-1] == "Four tools ran."
    assert desk.said(agents[1])[-1] == "All three are in."
    for agent in agents:
        desk.sound(agent)


def test_nothing_of_the_users_own_client_leaks_into_the_turn(desk: Desk) -> None:
    """Run from inside of a client, ours is no child of it; the marks name root, agent and turn."""
    desk.shell = {"GEMINI_CLI": "of the other"}
    agent = desk.new()
    desk.send(agent, "surroundings")
    lines = (desk.work / "environment").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    (turn,) = desk.of(agent, "turn.start")
    assert seen["AGENTSDIR_ROOT"] == str(desk.root)
    assert (seen["AGENTSDIR_AGENT"], seen["AGENTSDIR_TURN"]) == (agent, turn["turn_id"])
    assert seen.get("GEMINI_CLI") != "of the other"


def test_what_the_client_writes_is_printed_as_it_writes_it(any_desk: Desk) -> None:
    """A session is followed from before its first turn on; the end is what parsing gives."""
    agent = any_desk.new()
    following = any_desk.start("follow", agent, "--events")
    assert following.stdout is not None
    running = any_desk.begin(agent, any_desk.delegate)
    assert b"block_complete" in following.stdout.readline()
    assert any_desk.end(running).code == 0
    following.send_signal(2)
    assert any_desk.end(following).code == 130
    native = any_desk.native(agent)
    parsed = any_desk.ok("parse", "--view", "all", native).rows
    followed = any_desk.ok("follow", native, "--until-idle", "0").rows
    latest = {row["id"]: row for row in followed}
    for row in (*latest.values(), *parsed):
        row.pop("usage", None)  # for tokens alone no block is reported again
    assert latest == {row["id"]: row for row in parsed}
