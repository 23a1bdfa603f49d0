"""What the fake model answers a Claude Code, which calls its tools by these names."""

from __future__ import annotations

from typing import Any

from steps import Fault, Plans, Step, call, refusing, say, think


def _delegating(**given: Any) -> list[Step]:
    agent = call("Agent", description="Read the note", subagent_type="general-purpose", **given)
    return [Step((say("Delegating."), agent)), Step((say("The helper reported."),))]


_LONG = "One word after another, slowly, so that somebody can come and stop it in the middle."

# A command, and others that the client takes a rule for it to allow as well, or that begin so.
MADE = "touch made.txt"
WIDER = [
    "timeout 9 touch made.txt", "touch made.txt; touch made.txt", "touch made.txt < note.txt",
    "touch made.txt other.txt", "touch made.txt; rm -f note.txt", "touch made.txt 2>/dev/null",
    "nohup touch made.txt", "touch made.txt && touch made.txt", "touch made.txt # x",
]  # fmt: skip


def _bash(command: str) -> Step:
    return Step((call("Bash", command=command, description="make a file"),))


def _write(name: str, content: str) -> Step:
    return Step((call("Write", file_path="{cwd}/" + name, content=content),))


_EDIT = {"old_string": "hello", "new_string": "bye", "replace_all": False}

# `cli` is this program; the child's prompt names a plan of its own.
_SPAWN = "{cli} spawn --name helper '[[hello]]'"

PLANS: Plans = {
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
    "write-twice": [
        _write("one.txt", "once\n"),
        _write("two.txt", "twice\n"),
        Step((say("Both are there."),)),
    ],
    "edit": [
        Step((call("Read", file_path="{cwd}/note.txt"),)),
        Step((call("Edit", file_path="{cwd}/note.txt", **_EDIT),)),
        _bash("rm note.txt"),
        Step((say("That is settled."),)),
    ],
    "wider": [*map(_bash, (MADE, *WIDER)), Step((say("That is settled."),))],
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
    "spawner": [
        Step((say("Asking a helper."), call("Bash", command=_SPAWN, description="Ask a helper"))),
        Step((say("It is on its way."),)),
        Step((say("The helper has answered."),)),
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
    "refused-key": refusing(401, "authentication_error"),
    "rate-limit": refusing(429, "rate_limit_error"),
    "overloaded": refusing(529, "overloaded_error"),
    "overloaded-twice": refusing(529, "overloaded_error", times=2),
    "server-error": refusing(500, "api_error"),
    "elsewhere": refusing(500, "api_error"),
    "bad-request": refusing(400, "invalid_request_error"),
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
