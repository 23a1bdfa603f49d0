"""What a run says on stdout of how the turn ended: its `result` line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agentsdir.adapters.gemini.transcripts.shapes import dict_of, text_of
from agentsdir.adapters.gemini.transcripts.tokens import stream_usage

if TYPE_CHECKING:
    from agentsdir.formats.reading.usage import Usage


class Outcome(NamedTuple):
    """A `result` line.

    `error_type` and `message` are empty where it names no error: of an answer that was empty or
    malformed, a failed result says only that it failed, and `message` is what the `error` line
    before it said. `stats` is as the client wrote it, `usage` the tokens in it.
    """

    failed: bool
    error_type: str
    message: str
    stats: dict[str, Any]
    usage: Usage | None


def read_outcome(value: dict[str, Any], said: str) -> Outcome:
    """Read a `result` line.

    Args:
        said: the message of the last `error` line of that severity, empty without one.
    """
    failed = value.get("status") != "success"
    error = dict_of(value.get("error"))
    return Outcome(
        failed=failed,
        error_type=text_of(error.get("type")),
        message=text_of(error.get("message")) or (said if failed else ""),
        stats=dict_of(value.get("stats")),
        usage=stream_usage(value.get("stats")),
    )
