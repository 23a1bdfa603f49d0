"""How a run of the client ended, by its own words; its exit code says next to nothing."""

from __future__ import annotations

import re
from typing import Any

import orjson

from agentsdir.adapters.claude.shapes import mapping, text
from agentsdir.formats.errors import ProviderError

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
    "no-conversation": "its transcript is gone from the client's store, or is not resumable",
    "session-in-use": "another client may have it open; if not, end the process that has",
    "cut-stream": "send the prompt again; what was done until then is in the log",
}
_STATUS = re.compile(r"API Error: (\d{3})\b")
# Turns that ended where they were told to: the text before the limit is the answer.
_LIMITS = frozenset({"error_max_turns", "error_max_budget_usd"})
_TOLD = 2000
_TELLING = (b'"result"', b'"<synthetic>"', b'"background_tasks_changed"')


class Outcome:
    """What the lines of a run say of its end, and whether it still waits for something."""

    def __init__(self) -> None:
        self._result: dict[str, Any] | None = None
        self._error = ""
        self._tasks = False
        self._queued = False

    def note(self, line: bytes) -> None:
        """Take one line of the client's output. Its keys come in any order, `type` last perhaps."""
        if not any(word in line for word in _TELLING):
            return
        said = _object(line)
        kind = said.get("type")
        if kind == "result":
            self._result = said
            self._queued = bool(said.get("queued_turn_count"))
        elif kind == "assistant":
            self._error = text(said.get("error"))
        elif said.get("subtype") == "background_tasks_changed":
            self._tasks = bool(said.get("tasks"))

    @property
    def is_settled(self) -> bool:
        """Whether the client has answered and nothing runs on in its background."""
        return self._result is not None and not self._tasks and not self._queued

    def failure(self, code: int | None, errors: str) -> ProviderError | None:
        """Return why the run failed, None where it did not.

        Args:
            code: its exit code, None when it had to be ended.
            errors: the end of its standard error.
        """
        result = self._result
        if result is None:
            return self._unfinished(code, errors)
        subtype = text(result.get("subtype"))
        if result.get("is_error") is not True and not subtype.startswith("error"):
            return None
        if subtype in _LIMITS:
            return None
        reasons = [one for one in result.get("errors") or [] if isinstance(one, str)]
        message = "\n".join(reasons) or text(result.get("result")) or subtype
        return _error(self._kind(result, message), message)

    def _kind(self, result: dict[str, Any], message: str) -> str:
        if message.startswith("No conversation found"):
            return "no-conversation"
        reason = text(result.get("terminal_reason"))
        if reason == "prompt_too_long" or message.startswith("Prompt is too long"):
            return "prompt-too-long"
        if result.get("stop_reason") == "refusal":
            return "refused"
        if reason.startswith("aborted"):
            return "aborted"
        found = _STATUS.search(message)
        status = str(result.get("api_error_status") or (found[1] if found else ""))
        return _KINDS.get(self._error) or _KINDS.get(status) or "api-error"

    def _unfinished(self, code: int | None, errors: str) -> ProviderError:
        told = errors[-_TOLD:]
        if "is already in use" in errors:
            return _error("session-in-use", told)
        how = "was ended" if code is None else f"ended with {code}"
        said = f": {told}" if told else ", and said nothing"
        return _error("cut-stream", f"the client {how} before it had answered{said}")


def _error(kind: str, message: str) -> ProviderError:
    return ProviderError(message, hint=_HINTS.get(kind, ""), kind=kind)


def _object(line: bytes) -> dict[str, Any]:
    try:
        return mapping(orjson.loads(line))
    except ValueError:
        return {}
