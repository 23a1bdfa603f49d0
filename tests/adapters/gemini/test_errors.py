"""How a run ended is what its result says; exit codes are an HTTP status modulo 256, or 0."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from agentsdir.adapters.gemini.run import failure, is_settled
from agentsdir.adapters.gemini.stream import GeminiTranslator, JoinedTurn

OK = {"type": "result", "status": "success", "stats": {}}


def told(*lines: dict[str, Any]) -> JoinedTurn:
    """Return what is known after some lines."""
    turn = JoinedTurn(GeminiTranslator())
    for line in lines:
        list(turn.line(orjson.dumps(line) + b"\n"))
    list(turn.end())
    return turn


def refused(message: str, kind: str = "unknown") -> dict[str, Any]:
    """Return a result of a turn that failed."""
    return {**OK, "status": "error", "error": {"type": kind, "message": message}}


@pytest.mark.parametrize("code", [0, 1, 144, -9, None])
def test_a_result_that_is_no_error_is_success_whatever_the_exit_code(code: int | None) -> None:
    """Signals after the answer change nothing."""
    assert is_settled(told(OK))
    assert failure(told(OK), code, "noise") is None


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (refused('[API Error: {"error":{"code":400,"message":"bad"}}]'), "api-error"),
        (refused('[API Error: {"error":{"code": 401}}]'), "bad-key"),
        (refused('[API Error: {"error":{"code":403}}]'), "bad-key"),
        (refused('[API Error: {"error":{"code":404}}]'), "no-model"),
        (refused('[API Error: {"error":{"code":429}}]'), "rate-limited"),
        (refused("[API Error: got status: 503 Service Unavailable]"), "overloaded"),
        (refused("terminated"), "api-error"),
        (refused('{"code":400,"details":[{"reason":"API_KEY_INVALID"}]}'), "bad-key"),
        (refused("Reached max session turns", "FatalTurnLimitedError"), "max-turns"),
        (refused("no login", "FatalAuthenticationError"), "bad-key"),
        ({**OK, "status": "error"}, "api-error"),
    ],
)
def test_a_failed_turn_says_which_kind_of_failure_it_was(line: dict[str, Any], kind: str) -> None:
    """Exit code 0 does not make a failed turn a good one."""
    failed = failure(told(line), 0, "")
    assert failed is not None
    assert failed.kind == kind
    assert failed.message


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (145, "bad-key"),
        (148, "no-model"),
        (173, "rate-limited"),
        (247, "overloaded"),
        (144, "api-error"),
        (None, "api-error"),
    ],
)
def test_where_the_reason_has_no_status_the_exit_code_has_what_is_left_of_it(
    code: int | None, kind: str
) -> None:
    """Of some errors the client passes on the words alone."""
    failed = failure(told(refused("[API Error: enough]\nPlease wait")), code, "")
    assert failed is not None
    assert failed.kind == kind


NO_SESSION = 'Error resuming session: Invalid session identifier "x".\n  Searched in /a/chats.'
IN_USE = 'Error starting session: Session ID "x" already exists. Use --resume to resume it.'
NOISE = "Warning: Basic terminal detected (TERM=dumb).\nRipgrep is not available. Falling back.\n"


@pytest.mark.parametrize(
    ("code", "errors", "kind"),
    [
        (42, NOISE + NO_SESSION, "no-conversation"),
        (42, "Error resuming session: No previous sessions found for this project.",
         "no-conversation"),
        (42, IN_USE, "session-in-use"),
        (41, "Please set an Auth method", "bad-key"),
        (55, "Gemini CLI is not running in a trusted directory.", "untrusted-folder"),
        (1, "Unknown argument: resume", "refused-start"),
        (52, "Error in settings.json", "refused-start"),
        (0, "", "cut-stream"),
        (0, NOISE, "cut-stream"),
        (-9, "", "cut-stream"),
        (None, "", "cut-stream"),
    ],
)  # fmt: skip
def test_a_run_without_a_result_is_judged_by_its_end_and_what_it_said_of_it(
    code: int | None, errors: str, kind: str
) -> None:
    """What a client says at every start is no reason, and is not told."""
    assert not is_settled(told())
    failed = failure(told(), code, errors)
    assert failed is not None
    assert failed.kind == kind
    assert "Ripgrep" not in failed.message


def test_what_the_client_says_is_shown_without_colours_and_pages_of_usage() -> None:
    """A wrong argument is answered by all that there are."""
    said = "\x1b[31mInvalid values:\x1b[0m\n  Given: x  \n\nUsage: gemini [options]\n\nCommands:\n"
    failed = failure(told(), 1, NOISE + said)
    assert failed is not None
    assert failed.message == "Invalid values:\n  Given: x"


def test_a_folder_that_is_not_trusted_is_explained_in_our_words() -> None:
    """The client names an option of its own."""
    failed = failure(told(), 55, "\x1b[31mnot running in a trusted directory, use `--skip-trust`")
    assert failed is not None
    assert "skip-trust" not in failed.message
    assert "[providers.gemini.env]" in str(failed.hint)


def test_a_model_that_the_api_has_not_is_named_on_standard_error_alone() -> None:
    """The client's reason is the API's words, and its exit code says nothing."""
    errors = (
        "Error when talking to Gemini API\nModelNotFoundError: models/x is not found\n    at run"
    )
    failed = failure(told(refused("[API Error: models/x is not found]")), 1, errors)
    assert failed is not None
    assert failed.kind == "no-model"
