"""What the fake model answers a Gemini CLI, which calls its tools by these names.

A subagent ends its work with a tool of its own, `complete_task`.
"""

from __future__ import annotations

from typing import Any

from steps import Fault, Plans, Step, call, refusing, say, think


def _delegating(tool: str, **given: Any) -> list[Step]:
    return [Step((say("Delegating."), call(tool, **given))), Step((say("The helper reported."),))]


_LONG = "One word after another, slowly, so that somebody can come and stop it in the middle."
_SHELL = "run_shell_command"

# `cli` is this program; the child's prompt names a plan of its own.
_SPAWN = "{cli} spawn --name helper '[[hello]]'"

PLANS: Plans = {
    "hello": [Step((think("**Greeting** A greeting is wanted."), say("Good day.")))],
    "elsewhere": [Step((say("Seven sheep."),))],
    "again": [Step((say("This is the next turn."),))],
    "tools": [
        Step(
            (
                think("**Reading** First the note."),
                say("Reading."),
                call("read_file", file_path="note.txt"),
            )
        ),
        Step((call(_SHELL, command="echo out; echo err >&2; exit 3", description="Fail"),)),
        Step((call("write_file", file_path="made.txt", content="made\n"),)),
        Step((call("read_file", file_path="absent.txt"),)),
        Step((say("Four tools ran."),)),
    ],
    "write": [
        Step((say("I will write."), call("write_file", file_path="asked.txt", content="asked\n"))),
        Step((say("That is settled."),)),
    ],
    "parallel": [
        Step(
            (
                say("Three at once."),
                call(_SHELL, command="sleep 0.3; echo late", description="late"),
                call("read_file", file_path="note.txt"),
                call(_SHELL, command="echo early", description="early"),
            )
        ),
        Step((say("All three are in."),)),
    ],
    # How an agent is called since 0.39, and before.
    "delegate": _delegating("invoke_agent", agent_name="generalist", prompt="Read. [[reader]]"),
    "delegate-by-name": _delegating("generalist", request="Read. [[reader]]"),
    "delegate-asleep": _delegating(
        "invoke_agent", agent_name="generalist", prompt="Wait. [[sleeper]]"
    ),
    "delegate-by-name-asleep": _delegating("generalist", request="Wait. [[sleeper]]"),
    "reader": [
        Step(
            (
                think("**Mine** To read."),
                say("Opening."),
                call("read_file", file_path="note.txt"),
            )
        ),
        Step((call("complete_task", result={"response": "The note says hello."}),)),
    ],
    "surroundings": [
        Step((call(_SHELL, command="env >environment", description="Look around"),)),
        Step((say("Seen."),)),
    ],
    "large": [
        Step((call(_SHELL, command="seq 1 20000", description="Count"),)),
        Step((say("That was long."),)),
    ],
    "spawner": [
        Step((say("Asking a helper."), call(_SHELL, command=_SPAWN, description="Ask a helper"))),
        Step((say("It is on its way."),)),
        Step((say("The helper has answered."),)),
    ],
    "long": [Step((say(_LONG),), pause=0.2)],
    "stall": [
        Step((think("**Before** It."), say("This never comes to its end, ever.")), Fault("stall"))
    ],
    "sleeper": [
        Step(
            (
                say("A long command."),
                call(_SHELL, command="echo $$ > begun; sleep 600", description="sleep"),
            )
        ),
        Step((say("Unreachable."),)),
    ],
    "refused-key": refusing(401, "UNAUTHENTICATED"),
    "no-model": refusing(404, "NOT_FOUND"),
    "rate-limit": refusing(429, "RESOURCE_EXHAUSTED"),
    "overloaded": refusing(503, "UNAVAILABLE"),
    "server-error": refusing(500, "INTERNAL"),
    "bad-request": refusing(400, "INVALID_ARGUMENT"),
    "cut": [Step((say("Never whole at any time, however often it is asked for."),), Fault("cut"))],
    "empty": [Step(())],
    "too-long": [Step((say("Cut by the limit."),), stop="MAX_TOKENS")],
}
