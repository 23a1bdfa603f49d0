"""What goes wrong between a turn and the model: it is named, recorded, and the agent goes on."""

from __future__ import annotations

from commands import until
from gemini_desk import GeminiDesk as Desk
from gemini_desk import failed

REFUSALS = {
    "refused-key": "bad-key",
    "no-model": "no-model",
    "rate-limit": "rate-limited",
    "overloaded": "overloaded",
    "cut": "api-error",
    "empty": "api-error",
}


def test_a_first_turn_that_the_api_refuses_is_no_end(any_desk: Desk) -> None:
    """The newer client neither resumes such a session nor lets its id be used again."""
    agent = any_desk.new()
    assert failed(any_desk.send(agent, "bad-request", "--json")) == "api-error"
    (told,) = any_desk.of(agent, "turn.error")
    assert told["kind"] == "api-error"
    assert any_desk.types(agent).count("user_message") == 1
    any_desk.quiet()
    any_desk.recalled(agent)


def test_a_later_turn_that_the_api_refuses_loses_nothing(any_desk: Desk) -> None:
    """The newer client takes the prompt back out of its history; the log keeps it."""
    agent = any_desk.new()
    any_desk.send(agent, "tools")
    native = any_desk.native(agent)
    assert failed(any_desk.send(agent, "server-error", "--json")) == "api-error"
    any_desk.sound(agent)
    assert "Four tools ran." in any_desk.recalled(agent).texts
    assert any_desk.native(agent) == native
    assert any_desk.types(agent).count("user_message") == 3


def test_a_refusal_of_the_api_fails_the_turn_under_its_own_name(desk: Desk) -> None:
    """Whatever the client's exit code is; and the next turn runs."""
    agent = desk.new()
    desk.send(agent, "hello")
    found = {plan: failed(desk.send(agent, plan, "--json")) for plan in REFUSALS}
    assert found == REFUSALS
    assert "Good day." in desk.recalled(agent).texts


def test_an_answer_cut_by_its_limit_is_an_answer(desk: Desk) -> None:
    """The client does not say that it was cut."""
    agent = desk.new()
    assert desk.send(agent, "too-long").out == "Cut by the limit.\n"
    desk.sound(agent)


def test_an_untrusted_folder_is_named_with_what_to_do(desk: Desk) -> None:
    """The newer client does not start in one when no user can be asked."""
    desk.variables["GEMINI_CLI_TRUST_WORKSPACE"] = "false"
    desk.configure()
    agent = desk.new()
    done = desk.send(agent, "hello", "--json")
    assert failed(done) == "untrusted-folder"
    assert "GEMINI_CLI_TRUST_WORKSPACE" in done.error["hint"]
    del desk.variables["GEMINI_CLI_TRUST_WORKSPACE"]
    desk.configure()
    desk.recalled(agent)


def test_without_leave_to_use_its_tools_the_client_goes_on_without_them(desk: Desk) -> None:
    """No user is asked: such tools are not there for the model."""
    desk.configure(permission_mode="default")
    agent = desk.new()
    done = desk.send(agent, "write", "--json")
    assert (done.code, done.json["response"]) == (0, "I will write.\n\nThat is settled."), done
    assert not (desk.work / "asked.txt").exists()
    desk.sound(agent)


def test_a_session_that_is_open_in_a_client_elsewhere_is_left_alone(desk: Desk) -> None:
    """Two writers would lose each other's answers."""
    agent = desk.new()
    desk.send(agent, "hello")
    by_hand = desk.open_by_hand(desk.native(agent), desk.ask("stall"))
    until(lambda: desk.api.of("stall") or by_hand.poll() is not None, "the request")
    assert by_hand.poll() is None
    assert failed(desk.send(agent, "again", "--json")) == "session-open"
    assert desk.listed_client(agent) is not None
    desk.close_by_hand(by_hand)
    assert desk.listed_client(agent) is None
    desk.recalled(agent)
