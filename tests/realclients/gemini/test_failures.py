"""What goes wrong between a turn and the model: it is named, recorded, and the agent goes on."""

from __future__ import annotations

import pytest
from gemini_desk import GeminiDesk as Desk
from gemini_desk import failed

REFUSALS = [
    ("bad-request", "api-error"),
    ("server-error", "api-error"),
]
OTHER_REFUSALS = [
    ("refused-key", "bad-key"),
    ("no-model", "no-model"),
    ("rate-limit", "rate-limited"),
    ("overloaded", "overloaded"),
    ("cut", "api-error"),
    ("empty", "api-error"),
]


@pytest.mark.parametrize(("plan", "kind"), REFUSALS)
def test_a_first_turn_that_the_api_refuses_is_no_end(any_desk: Desk, plan: str, kind: str) -> None:
    """The newer client neither resumes such a session nor lets its id be used again."""
    agent = any_desk.new()
    assert failed(any_desk.send(agent, plan, "--json")) == kind
    (told,) = any_desk.of(agent, "turn.error")
    assert told["kind"] == kind
    # Where the client takes the prompt out of its history again, it is superseded, and still there.
    kinds = [block["type"] for block in any_desk.blocks(agent).values()]
    assert kinds.count("user_message") == 1
    any_desk.quiet()
    any_desk.recalled(agent)


@pytest.mark.parametrize(("plan", "kind"), REFUSALS)
def test_a_later_turn_that_the_api_refuses_loses_nothing(
    any_desk: Desk, plan: str, kind: str
) -> None:
    """The newer client takes the prompt back out of its history; the log keeps it."""
    agent = any_desk.new()
    any_desk.send(agent, "tools")
    native = any_desk.native(agent)
    assert failed(any_desk.send(agent, plan, "--json")) == kind
    any_desk.sound(agent)
    sent = any_desk.recalled(agent)
    assert "Four tools ran." in sent.texts
    assert any_desk.native(agent) == native
    prompts = [
        block["content"]
        for block in any_desk.blocks(agent).values()
        if block["type"] == "user_message"
    ]
    assert len(prompts) == 3


@pytest.mark.parametrize(("plan", "kind"), OTHER_REFUSALS)
def test_a_refusal_of_the_api_fails_the_turn_under_its_own_name(
    desk: Desk, plan: str, kind: str
) -> None:
    """Whatever the client's exit code is; and the next turn runs."""
    agent = desk.new()
    desk.send(agent, "hello")
    assert failed(desk.send(agent, plan, "--json")) == kind
    desk.recalled(agent)


def test_an_answer_cut_by_its_limit_is_an_answer(any_desk: Desk) -> None:
    """The client does not say that it was cut."""
    agent = any_desk.new()
    assert any_desk.send(agent, "too-long").out == "Cut by the limit.\n"
    any_desk.sound(agent)


def test_an_unknown_model_is_named(any_desk: Desk) -> None:
    """The API has no such model, and the client tells so."""
    agent = any_desk.new("--model", "no-such-model")
    done = any_desk.send(agent, "no-model", "--json")
    assert failed(done) == "no-model"
    assert any_desk.api.of("no-model")[0].model == "no-such-model"


def test_an_untrusted_folder_is_named_with_what_to_do(desk: Desk) -> None:
    """The newer client does not start in one when nobody can be asked."""
    desk.variables["GEMINI_CLI_TRUST_WORKSPACE"] = "false"
    desk.configure()
    agent = desk.new()
    done = desk.send(agent, "hello", "--json")
    assert failed(done) == "untrusted-folder"
    assert "GEMINI_CLI_TRUST_WORKSPACE" in done.error["hint"]
    del desk.variables["GEMINI_CLI_TRUST_WORKSPACE"]
    desk.configure()
    desk.recalled(agent)


def test_without_leave_to_use_its_tools_the_client_goes_on_without_them(any_desk: Desk) -> None:
    """Nobody is asked: such tools are not there for the model."""
    any_desk.configure(permission_mode="default")
    agent = any_desk.new()
    done = any_desk.send(agent, "write", "--json")
    assert (done.code, done.json["response"]) == (0, "I will write.\n\nThat is settled."), done
    assert not (any_desk.work / "asked.txt").exists()
    any_desk.sound(agent)


def test_a_session_that_is_open_in_a_client_elsewhere_is_left_alone(any_desk: Desk) -> None:
    """Two writers would lose each other's answers."""
    agent = any_desk.new()
    any_desk.send(agent, "hello")
    by_hand = any_desk.open_by_hand(any_desk.native(agent), any_desk.ask("stall"))
    while not any_desk.api.of("stall"):
        assert by_hand.poll() is None
    assert failed(any_desk.send(agent, "again", "--json")) == "session-open"
    any_desk.kill(by_hand)
    any_desk.recalled(agent)
