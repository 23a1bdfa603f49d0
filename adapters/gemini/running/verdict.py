"""Whether a run of the client succeeded, by its own words; its exit code is only a hint."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentsdir.formats.errors import ProviderError

if TYPE_CHECKING:
    from agentsdir.adapters.gemini.running.joined import JoinedTurn

# By the HTTP status that an API error carries.
_STATUSES = {
    "401": "bad-key",
    "403": "bad-key",
    "404": "no-model",
    "429": "rate-limited",
    "503": "overloaded",
    "529": "overloaded",
}
# By the exit code that is left of an HTTP status.
_LEFT_WITH: dict[int | None, str] = {int(status) % 256: status for status in _STATUSES}
# By what the client calls an error of its own, and by the exit code that it has for it.
_TYPES = {
    "FatalAuthenticationError": "bad-key",
    "FatalTurnLimitedError": "max-turns",
}
# By a word in the reason, or of what stands on standard error beside it.
_WORDS = {"ModelNotFoundError": "no-model", "API_KEY_INVALID": "bad-key"}
_CODES = {41: "bad-key", 53: "max-turns"}
_NOT_TRUSTED = 55
# By what stands on standard error when there is no result.
_SAID = {
    "Error resuming session": "no-conversation",
    "already exists. Use --resume": "session-in-use",
}
_REFUSED = frozenset({1, 42, 44, 52, 54})
_HINTS = {
    "bad-key": "log in with the client, "
    "or set GEMINI_API_KEY under [providers.gemini.env] in config.toml",
    "no-model": "`agentsdir new --model` and config.toml name one; without, the client chooses",
    "rate-limited": "send the prompt again later",
    "overloaded": "send the prompt again later",
    "no-conversation": "`agentsdir reset` begins it anew; the log keeps what it has",
    "session-in-use": "`agentsdir reset` begins it anew; the log keeps what it has",
    "untrusted-folder": "trust it in the client, or set GEMINI_CLI_TRUST_WORKSPACE "
    'to "true" under [providers.gemini.env] in config.toml',
    "max-turns": "raise model.maxSessionTurns in the client's settings",
    "cut-stream": "send the prompt again; what was done until then is in the log",
}
_STATUS = re.compile(r'"code"\s*:\s*(\d{3})\b|\bstatus:? (\d{3})\b')
# What some versions say at every start.
_NOISE = ("Warning: ", "Ripgrep is not available", "YOLO mode is enabled", "[STARTUP]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# What follows a refusal of an argument: all arguments there are.
_USAGE = "Usage: "
_TOLD = 2000
_UNTRUSTED = "Gemini CLI runs nothing in a folder that its user has not trusted"


def is_settled(told: JoinedTurn) -> bool:
    """Tell whether the client has said how the turn ended."""
    return told.outcome is not None


def failure(told: JoinedTurn, code: int | None, errors: str) -> ProviderError | None:
    """Return why a run failed, None where it did not: its result says so.

    Args:
        told: all of its output.
        code: its exit code, None when it had to be ended.
        errors: the end of its standard error.
    """
    outcome = told.outcome
    if outcome is None:
        return _unfinished(code, _without_noise(errors))
    if not outcome.failed:
        return None
    message = outcome.message or "the client gave no reason"
    found = _STATUS.search(message)
    status = (found[1] or found[2]) if found else _LEFT_WITH.get(code, "")
    named = next((kind for word, kind in _WORDS.items() if word in message + errors), None)
    kind = _TYPES.get(outcome.error_type) or named or _STATUSES.get(status) or "api-error"
    return _error(kind, message)


def _unfinished(code: int | None, errors: str) -> ProviderError:
    told = errors[-_TOLD:]
    for words, kind in _SAID.items():
        if words in errors:
            return _error(kind, errors[:_TOLD])
    if code == _NOT_TRUSTED:
        return _error("untrusted-folder", _UNTRUSTED)
    if code in _CODES:
        return _error(_CODES[code], told or f"the client ended with {code}")
    if told and code in _REFUSED:
        return _error("refused-start", errors[:_TOLD])
    how = "was ended" if code is None else f"ended with {code}"
    said = f": {told}" if told else ", and said nothing"
    return _error("cut-stream", f"the client {how} before it had answered{said}")


def _without_noise(errors: str) -> str:
    said = []
    for line in _COLOUR.sub("", errors).splitlines():
        if line.startswith(_USAGE):
            break
        if not line.startswith(_NOISE):
            said.append(line.rstrip())
    return "\n".join(said).strip()


def _error(kind: str, message: str) -> ProviderError:
    return ProviderError(message, hint=_HINTS.get(kind), kind=kind)
