"""What the fake model answers: a prompt names a plan, and each request of a turn gets a step of it.

A prompt says ``[[NAME key=value …]]`` anywhere in its text; ``{key}`` in a plan's strings is then
replaced by the value. A subagent's prompt names a plan of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Fault(NamedTuple):
    """How a step goes wrong, the first `times` times that it is asked for.

    `kind` is ``refuse`` (an HTTP error of `status` and `error`), ``cut`` (the connection closes
    after `after` deltas), ``event`` (an error event of `error` after them) or ``stall`` (nothing
    more comes).
    """

    kind: str
    after: int = 2
    status: int = 0
    error: str = "api_error"
    times: int = 1_000_000


class Step(NamedTuple):
    """One answer of the model: its content blocks as the API spells them, and how it fails."""

    blocks: tuple[dict[str, Any], ...]
    fault: Fault | None = None
    stop: str = ""
    pause: float = 0.0


def say(text: str) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": text}


def think(text: str) -> dict[str, Any]:
    """Return a thinking block; the server signs it."""
    return {"type": "thinking", "thinking": text}


def call(name: str, **given: Any) -> dict[str, Any]:
    """Return a tool call; the server gives it an id."""
    return {"type": "tool_use", "name": name, "input": given}


def _refusing(status: int, error: str, *, times: int = 1_000_000) -> list[Step]:
    fault = Fault("refuse", status=status, error=error, times=times)
    return [Step((say("Said after all."),), fault)]


def _delegating(**given: Any) -> list[Step]:
    agent = call("Agent", description="Read the note", subagent_type="general-purpose", **given)
    return [Step((say("Delegating."), agent)), Step((say("The helper reported."),))]


_LONG = "One word after another, slowly, so that somebody can come and stop it in the middle."

PLANS: dict[str, list[Step]] = {
    "hello": [Step((think("A greeting is wanted."), say("Good day.")))],
    "again": [Step((say("This is the next turn."),))],
    "tools": [
        Step((think("First the note."), say("Reading."), call("Read", file_path="{cwd}/note.txt"))),
        Step((call("Bash", command="echo out; echo err >&2; exit 3", description="Fail"),)),
        Step((call("Write", file_path="{cwd}/made.txt", content="made\n"),)),
        Step((say("Three tools ran."),)),
    ],
    "write": [
        Step((say("I will write."), call("Write", file_path="{cwd}/asked.txt", content="asked\n"))),
        Step((say("That is settled."),)),
    ],
    "parallel": [
        Step(
            (
                say("Three at once."),
                call("Bash", command="sleep 0.3; echo late", description="late"),
                call("Read", file_path="{cwd}/note.txt"),
                call("Bash", command="echo early", description="early"),
            )
        ),
        Step((say("All three are in."),)),
    ],
    "delegate": _delegating(prompt="Read it. [[reader cwd={cwd}]]", run_in_background=False),
    "background": _delegating(prompt="Read it. [[reader cwd={cwd}]]", run_in_background=True),
    "reader": [
        Step((think("Mine to read."), say("Opening."), call("Read", file_path="{cwd}/note.txt"))),
        Step((say("The note says hello."),)),
    ],
    "surroundings": [
        Step((call("Bash", command="env >{cwd}/environment", description="Look around"),)),
        Step((say("Seen."),)),
    ],
    "long": [Step((say(_LONG),), pause=0.2)],
    "stall": [
        Step((think("Before it."), say("This never comes to its end, ever.")), Fault("stall"))
    ],
    "sleeper": [
        Step(
            (
                say("A long command."),
                call("Bash", command="echo $$ > {cwd}/begun; sleep 600", description="sleep"),
            )
        ),
        Step((say("Unreachable."),)),
    ],
    "refused-key": _refusing(401, "authentication_error"),
    "rate-limit": _refusing(429, "rate_limit_error"),
    "overloaded": _refusing(529, "overloaded_error"),
    "overloaded-twice": _refusing(529, "overloaded_error", times=2),
    "server-error": _refusing(500, "api_error"),
    "bad-request": _refusing(400, "invalid_request_error"),
    "cut": [
        Step((say("Whole only at the second try, which is this one."),), Fault("cut", times=1))
    ],
    "cut-for-ever": [
        Step((say("Never whole at any time, however often it is asked for."),), Fault("cut"))
    ],
    "error-event": [
        Step(
            (say("Ended once by an event in the middle of it."),),
            Fault("event", error="overloaded_error", times=1),
        )
    ],
    "too-long": [Step((say("Cut by the limit."),), stop="max_tokens"), Step((say("The rest."),))],
    "refusal": [Step((say("Rather not."),), stop="refusal")],
}
