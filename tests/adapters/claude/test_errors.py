"""How a run ended is what its last result says, whatever its exit code was."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agentsdir.adapters.claude.run import failure, is_settled
from agentsdir.adapters.claude.stream import ClaudeTranslator

OK = {"type": "result", "subtype": "success", "is_error": False, "result": "Fine."}


def told(*lines: dict[str, Any]) -> ClaudeTranslator:
    """Return what is known after some lines."""
    translator = ClaudeTranslator()
    for line in lines:
        list(translator.line(orjson.dumps(line) + b"\n"))
    list(translator.end())
    return translator


def refused(**fields: Any) -> dict[str, Any]:
    """Return a result of a turn that failed."""
    return {**OK, "is_error": True, **fields}


def synthetic(error: str) -> dict[str, Any]:
    """Return the message that the client makes up for an error of the API."""
    message = {"id": "m", "role": "assistant", "model": "<synthetic>", "content": []}
    return {"type": "assistant", "uuid": "u", "message": message, "error": error}


def kind_of(*lines: dict[str, Any]) -> str:
    """Return the kind of failure, empty for none."""
    failed = failure(told(*lines), 1, "")
    return failed.kind if failed else ""


@pytest.mark.parametrize("code", [0, 1, 143, -9, None])
def test_a_result_that_is_no_error_is_success_whatever_the_exit_code(code: int | None) -> None:
    """Signals after the answer change nothing."""
    assert failure(told(OK), code, "noise") is None


def test_the_last_result_counts() -> None:
    """A background turn may fail after the first one succeeded, and the reverse."""
    assert kind_of(OK, refused(result="API Error: 500")) == "api-error"
    assert kind_of(refused(result="API Error: 500"), OK) == ""


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ([synthetic("authentication_failed"), refused(api_error_status=401)], "bad-key"),
        ([refused(api_error_status=401)], "bad-key"),
        ([refused(result="API Error: 401 {}")], "bad-key"),
        ([synthetic("rate_limit"), refused()], "rate-limited"),
        ([refused(result="API Error: 429 slow down")], "rate-limited"),
        ([synthetic("overloaded"), refused()], "overloaded"),
        ([refused(api_error_status=529)], "overloaded"),
        ([synthetic("billing_error"), refused()], "billing"),
        ([synthetic("model_not_found"), refused()], "no-model"),
        ([synthetic("unknown"), refused(result="API Error: 500")], "api-error"),
        ([refused(terminal_reason="prompt_too_long")], "prompt-too-long"),
        ([refused(result="Prompt is too long")], "prompt-too-long"),
        ([refused(stop_reason="refusal")], "refused"),
        ([refused(terminal_reason="aborted_streaming")], "aborted"),
        (
            [
                refused(
                    subtype="error_during_execution",
                    errors=["No conversation found with session ID: x"],
                )
            ],
            "no-conversation",
        ),
    ],
)
def test_a_failure_has_a_kind_by_the_clients_own_words(
    lines: list[dict[str, Any]], kind: str
) -> None:
    """It calls an API error a success with an error."""
    assert kind_of(*lines) == kind


@pytest.mark.parametrize("subtype", ["error_max_turns", "error_max_budget_usd"])
def test_a_limit_that_was_set_is_no_failure(subtype: str) -> None:
    """What was said before it is the answer."""
    assert kind_of(refused(subtype=subtype)) == ""


def test_a_failure_says_what_the_client_said() -> None:
    """In full, with what to do next."""
    failed = failure(told(refused(result="API Error: 401 bad key", api_error_status=401)), 1, "")
    assert failed is not None
    assert failed.message == "API Error: 401 bad key"
    assert "log in" in (failed.hint or "")


@pytest.mark.parametrize(
    ("code", "errors", "kind", "message"),
    [
        (1, "Error: Session ID x is already in use.", "session-in-use", "already in use"),
        (143, "", "cut-stream", "ended with 143"),
        (None, "", "cut-stream", "was ended"),
        (7, "out of order", "cut-stream", "7.*out of order"),
        (1, "unknown option --x", "refused-start", "unknown option"),
    ],
)
def test_a_run_without_a_result_is_cut(
    code: int | None, errors: str, kind: str, message: str
) -> None:
    """Its exit code and standard error are all there is."""
    failed = failure(told({"type": "system", "subtype": "init"}), code, errors)
    assert failed is not None
    assert failed.kind == kind
    with pytest.raises(type(failed), match=message):
        raise failed


def test_it_is_settled_when_it_answered_and_nothing_runs_on() -> None:
    """Tasks in the background bring another turn, and so do queued prompts."""
    tasks = {"type": "system", "subtype": "background_tasks_changed"}
    assert not is_settled(told())
    assert is_settled(told(OK))
    assert not is_settled(told({**tasks, "tasks": [{"task_id": "t"}]}, OK))
    assert is_settled(told({**tasks, "tasks": [{"task_id": "t"}]}, OK, {**tasks, "tasks": []}))
    assert not is_settled(told({**OK, "queued_turn_count": 1}))
