"""Whether a run of the client succeeded, by its own words; its exit code says next to nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentsdir.adapters.claude.outcomes import LIMITS
from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from agentsdir.adapters.claude.outcomes import Outcome
    from agentsdir.adapters.claude.translate import StdoutTranslator

# By what the client calls it: the `error` of its message, or the HTTP status.
_KINDS = {
    "authentication_failed": "bad-key",
    "oauth_org_not_allowed": "bad-key",
    "401": "bad-key",
    "403": "bad-key",
    "billing_error": "billing",
    "rate_limit": "rate-limited",
    "429": "rate-limited",
    "overloaded": "overloaded",
    "529": "overloaded",
    "model_not_found": "no-model",
}
_HINTS = {
    "bad-key": "log in with the client, or set its key in config.toml",
    "rate-limited": "send the prompt again later",
    "overloaded": "send the prompt again later",
    "no-conversation": "`agentsdir reset` begins it anew; the log keeps what it has",
    "session-in-use": "another client may have it open; if not, end the process that has",
    "cut-stream": "send the prompt again; what was done until then is in the log",
}
_STATUS = re.compile(r"API Error: (\d{3})\b")
_TOLD = 2000


def is_settled(told: StdoutTranslator) -> bool:
    """Tell whether the client has answered and nothing runs on in its background."""
    return bool(told.outcomes) and not told.outcomes[-1].queued and not told.has_tasks


def failure(told: StdoutTranslator, code: int | None, errors: str) -> ProviderError | None:
    """Return why a run failed, None where it did not: its last result says so.

    Args:
        told: all of its output.
        code: its exit code, None when it had to be ended.
        errors: the end of its standard error.
    """
    if not told.outcomes:
        return _unfinished(code, errors)
    outcome = told.outcomes[-1]
    # Who set a limit takes what was said before it for the answer.
    if not outcome.failed or outcome.subtype in LIMITS:
        return None
    return _error(_kind(outcome, told.error), outcome.reason)


def _kind(outcome: Outcome, error: str) -> str:
    message, reason = outcome.reason, outcome.terminal_reason
    if message.startswith("No conversation found"):
        return "no-conversation"
    if reason == "prompt_too_long" or message.startswith("Prompt is too long"):
        return "prompt-too-long"
    if outcome.stop_reason == "refusal":
        return "refused"
    if reason.startswith("aborted"):
        return "aborted"
    found = _STATUS.search(message)
    status = str(outcome.api_error_status or (found[1] if found else ""))
    return _KINDS.get(error) or _KINDS.get(status) or "api-error"


def _unfinished(code: int | None, errors: str) -> ProviderError:
    told = errors[-_TOLD:]
    if "is already in use" in errors:
        return _error("session-in-use", told)
    if told and code == 1:
        return _error("refused-start", told)  # it did not like how it was started, and says why
    how = "was ended" if code is None else f"ended with {code}"
    said = f": {told}" if told else ", and said nothing"
    return _error("cut-stream", f"the client {how} before it had answered{said}")


def _error(kind: str, message: str) -> ProviderError:
    return ProviderError(message, hint=_HINTS.get(kind), kind=kind)
