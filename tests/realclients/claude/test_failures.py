"""What goes wrong between a turn and the model: it is named, recorded, and the agent goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from claude_desk import ClaudeDesk as Desk
from commands import until

REFUSALS = [
    ("refused-key", "bad-key"),
    ("rate-limit", "rate-limited"),
    ("overloaded", "overloaded"),
    ("server-error", "api-error"),
    ("bad-request", "api-error"),
    ("cut-for-ever", "api-error"),
]


def test_a_refusal_of_the_api_fails_the_turn_under_its_own_name(any_desk: Desk) -> None:
    """The client calls it a success; the message is not sent again, and the next turn runs."""
    agent = any_desk.new()
    for plan, kind in REFUSALS:
        done = any_desk.send(agent, plan, "--json")
        assert (done.code, done.error["kind"]) == (14, kind), (plan, done)
        any_desk.sound(agent)
    kinds = [kind for _, kind in REFUSALS]
    assert [one["kind"] for one in any_desk.of(agent, "turn.error")] == kinds
    outcomes = [one["outcome"] for one in any_desk.of(agent, "message.delivered")]
    assert outcomes == ["failed"] * len(REFUSALS)
    assert any_desk.send(agent, "again").out == "This is the next turn.\n"
    any_desk.sound(agent)


@pytest.mark.parametrize("plan", ["overloaded-twice", "cut", "error-event"])
def test_what_the_client_gets_over_is_no_failure(any_desk: Desk, plan: str) -> None:
    """It asks again by itself, and the answer is in the log once."""
    agent = any_desk.new()
    done = any_desk.send(agent, plan, "--json")
    assert done.code == 0, done
    assert any_desk.said(agent) == [done.json["response"]]
    any_desk.sound(agent)


def test_an_answer_cut_by_its_limit_goes_on(any_desk: Desk) -> None:
    """The client asks for the rest in the same turn."""
    agent = any_desk.new()
    done = any_desk.send(agent, "too-long", "--json")
    assert done.code == 0, done
    assert any_desk.said(agent)[0] == "Cut by the limit."
    any_desk.sound(agent)


def test_a_refusal_of_the_model_is_reported(any_desk: Desk) -> None:
    """It is an answer of the model, and what the client makes of it decides."""
    agent = any_desk.new()
    done = any_desk.send(agent, "refusal", "--json")
    assert done.code in (0, 14), done
    if done.code:
        assert done.error["kind"] == "refused"
    any_desk.sound(agent)
    assert any_desk.send(agent, "again").code == 0


def test_an_api_that_is_not_there_fails_the_turn(desk: Desk) -> None:
    """No process listens at the port."""
    agent = desk.new()
    desk.variables["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:9"
    desk.configure()
    done = desk.send(agent, "hello", "--json")
    assert (done.code, done.error["kind"]) == (14, "api-error"), done
    desk.sound(agent)


@pytest.mark.parametrize("command", ["no-such-client", "/nowhere/claude"])
def test_a_missing_client_is_named_with_what_to_do(desk: Desk, command: str) -> None:
    """The message was queued, and its turn failed; installing it is enough to go on."""
    agent = desk.new()
    desk.configure(command=command)
    done = desk.send(agent, "hello", "--json")
    assert (done.code, done.error["kind"]) == (14, "no-client"), done
    assert command in done.error["message"]
    assert "config.toml" in done.error["hint"]
    desk.quiet()
    desk.configure()
    assert desk.send(agent, "again").code == 0


def test_a_client_that_only_says_why_it_will_not_run_is_quoted(desk: Desk) -> None:
    """It ends without an answer; its exit code and standard error are all there is."""
    broken = desk.folder / "broken"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 7\n")
    broken.chmod(0o700)
    desk.configure(command=str(broken))
    agent = desk.new()
    done = desk.send(agent, "hello", "--json")
    assert (done.code, done.error["kind"]) == (14, "cut-stream"), done
    assert "out of order" in done.error["message"]
    assert "7" in done.error["message"]


def test_a_working_directory_that_is_gone_is_named(desk: Desk, tmp_path: Path) -> None:
    """With what names its new place; no turn begins."""
    cwd = tmp_path / "project"
    cwd.mkdir()
    agent = desk.new("--cwd", str(cwd))
    desk.send(agent, "hello")
    cwd.rename(tmp_path / "moved")
    done = desk.send(agent, "again", "--json")
    assert (done.code, done.error["kind"]) == (13, "no-folder"), done
    assert str(cwd) in done.error["message"]
    assert f"`agentsdir set {agent} cwd=.`" in done.error["hint"]


def test_an_id_that_the_client_has_already_is_refused_by_it(desk: Desk) -> None:
    """A session of that id was made behind our back, before the first turn."""
    agent = desk.new()
    desk.by_hand(desk.native(agent), desk.ask("hello"), fresh=True)
    done = desk.send(agent, "again", "--json")
    # What stands in the client's store is taken over first, so the turn goes on with it.
    assert done.code == 0, done
    (request,) = desk.api.of("again")
    assert "Good day." in request.texts
    desk.sound(agent)


def test_a_session_that_is_open_in_a_client_elsewhere_is_left_alone(desk: Desk) -> None:
    """Two writers would lose each other's answers."""
    agent = desk.new()
    desk.send(agent, "hello")
    registry = desk.store / "sessions"
    registry.mkdir(exist_ok=True)
    started = (Path("/proc") / str(os.getpid()) / "stat").read_text().rpartition(")")[2].split()[19]
    entry = {"pid": os.getpid(), "procStart": started, "sessionId": desk.native(agent)}
    (registry / f"{os.getpid()}.json").write_text(json.dumps(entry))
    done = desk.send(agent, "again", "--json")
    assert (done.code, done.error["kind"]) == (14, "session-open"), done
    assert str(os.getpid()) in done.error["message"]
    assert desk.api.of("again") == []
    (registry / f"{os.getpid()}.json").write_text(json.dumps({**entry, "procStart": "1"}))
    assert desk.send(agent, "again").code == 0
    desk.sound(agent)


def test_the_client_itself_says_that_a_session_is_open(desk: Desk) -> None:
    """Our reading of its registry is of what it really writes there."""
    agent = desk.new()
    desk.send(agent, "hello")
    by_hand = desk.open_by_hand(desk.native(agent), desk.ask("stall"))
    until(lambda: desk.api.of("stall"), "the client at work elsewhere")
    done = desk.send(agent, "again", "--json")
    assert (done.code, done.error["kind"]) == (14, "session-open"), done
    assert desk.listed_client(agent) == by_hand.pid
    by_hand.kill()
    by_hand.wait()
    assert desk.listed_client(agent) is None
    assert desk.send(agent, "again").code == 0


def test_a_session_that_is_gone_from_the_client_is_put_back(desk: Desk) -> None:
    """Our copy of the transcript is enough."""
    agent = desk.new()
    desk.send(agent, "hello")
    desk.transcript(desk.native(agent)).unlink()
    assert desk.send(agent, "again").code == 0
    (request,) = desk.api.of("again")
    assert "Good day." in request.texts
    desk.sound(agent)


ANSWERS = [
    ('echo \'{"behavior":"allow"}\'', True),
    ("exit 0", True),
    ("echo not today >&2; exit 1", False),
    ('echo \'{"behavior":"deny","message":"not today"}\'', False),
]


@pytest.mark.parametrize(("script", "allowed"), ANSWERS, ids=["allow", "empty", "exit", "deny"])
def test_a_tool_that_needs_permission_is_asked_for(
    any_desk: Desk, script: str, allowed: bool
) -> None:
    """The user's hook answers, and the model hears why not."""
    any_desk.configure(permission_mode="default")
    asked = any_desk.folder / "asked.json"
    any_desk.hook("tool-confirmation", f"cat >{asked}; {script}")
    agent = any_desk.new()
    done = any_desk.send(agent, "write", "--json")
    assert done.code == 0, done
    request = json.loads(asked.read_text())
    assert request["tool_name"] == "Write"
    assert request["input"]["content"] == "asked\n"
    assert (any_desk.work / "asked.txt").exists() is allowed
    (result,) = [b for b in any_desk.blocks(agent).values() if b["type"] == "tool_result"]
    assert bool(result["isError"]) is not allowed
    if not allowed:
        assert any("not today" in text for text in any_desk.api.of("write")[-1].texts)
    any_desk.sound(agent)


def test_a_tool_is_denied_where_no_user_can_be_asked(any_desk: Desk) -> None:
    """No hook, no terminal; the turn goes on."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new()
    done = any_desk.send(agent, "write", "--json")
    assert (done.code, done.json["response"]) == (0, "I will write.\n\nThat is settled."), done
    assert not (any_desk.work / "asked.txt").exists()
    any_desk.sound(agent)


def test_a_hook_may_change_what_a_tool_is_given(any_desk: Desk) -> None:
    """The tool runs with the changed input."""
    any_desk.configure(permission_mode="default")
    given = {"file_path": str(any_desk.work / "other.txt"), "content": "changed\n"}
    answer = any_desk.folder / "answer.json"
    answer.write_text(json.dumps({"behavior": "allow", "updatedInput": given}))
    any_desk.hook("tool-confirmation", f"cat >/dev/null; cat {answer}")
    agent = any_desk.new()
    assert any_desk.send(agent, "write").code == 0
    assert (any_desk.work / "other.txt").read_text() == "changed\n"
    assert not (any_desk.work / "asked.txt").exists()
    any_desk.sound(agent)
