"""Questions about tools that a client of the line protocol answers (docs/protocol.md)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from commands import PATIENCE

from agentsdir.schemas import check

# Speaks as Claude Code does: asks for one tool, and says the answer.
CLIENT = """\
import json, sys
if sys.argv[1:] == ["--version"]: sys.exit(print("2.1.98 (Claude Code)"))
def say(**line): print(json.dumps(line), flush=True)
def hear(): return json.loads(sys.stdin.readline() or "null")
hear()
say(type="control_request", request_id="r", request=dict(subtype="can_use_tool",
    tool_name="Bash", tool_use_id="t", input=dict(command="git diff")))
said = hear()["response"]["response"]
say(type="assistant", uuid="u1", message=dict(id="m1", role="assistant",
    content=[dict(type="text", text=said["behavior"] + " " + said.get("message", ""))]))
say(type="result", subtype="success", is_error=False, result="x")
"""


class Asked:
    """A process of the protocol, with a turn that has asked."""

    question: Any

    def __init__(self, shell: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", "chat", "--jsonl"],
            env=shell.environment(),
            cwd=shell.cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def begin(self, **options: Any) -> None:
        """Begin the turn, and read until it asks."""
        self.write(id="turn", verb="send", args=["one", "hi"], options=options)
        self.question = self.until("turn", "question")

    def write(self, **request: Any) -> None:
        """Write a request."""
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(request) + b"\n")
        self.process.stdin.flush()

    def until(self, request: str, key: str) -> Any:
        """Read until an object of a request has a key; return what it holds."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = orjson.loads(line)
            assert check("protocol-answer", answer) == []
            if answer["id"] == request and key in answer:
                return answer[key]
        raise AssertionError(f"{request} has no {key}")

    def result(self) -> Any:
        """Return the result of the turn."""
        while (value := self.until("turn", "value"))["type"] != "turn":
            pass
        return value


@pytest.fixture
def ask(shell: Any) -> Iterator[Any]:
    """Return what begins a turn that asks; its process ends with the test."""
    (shell.home / "client.py").write_text(CLIENT)
    config = shell.home / ".config" / "agentsdir"
    config.mkdir(parents=True)
    command = [sys.executable, str(shell.home / "client.py")]
    (config / "config.toml").write_text(f"[providers.claude]\ncommand = {command!r}\n")
    shell.new("--provider", "claude", "--name", "one")
    made: list[Asked] = []
    late = threading.Timer(PATIENCE, lambda: [one.process.kill() for one in made])
    late.start()

    def begin(**options: Any) -> Asked:
        made.append(Asked(shell))
        made[-1].begin(**options)
        return made[-1]

    yield begin
    late.cancel()
    for one in made:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stdout):
            assert stream is not None
            stream.close()


def test_a_question_says_who_asks_for_what(ask: Any, shell: Any) -> None:
    """In which folder, and what would be kept."""
    asked = ask()

    question = asked.question
    assert (question["name"], question["toolName"]) == ("one", "Bash")
    assert (question["root"], question["folder"]) == (str(shell.root), str(shell.cwd))
    assert question["input"] == {"command": "git diff"}


@pytest.mark.parametrize(
    ("word", "options", "said"),
    [
        ("yes", {}, "allow"),
        ("no", {"reason": "run the tests first"}, "deny the user said no: run the tests first"),
    ],
)
def test_the_verb_answer_answers(ask: Any, word: str, options: dict[str, str], said: str) -> None:
    """The model gets the reason of a no."""
    asked = ask()

    asked.write(id=1, verb="answer", args=[asked.question["questionId"], word], options=options)

    assert asked.until("turn", "questionClosed") == asked.question["questionId"]
    assert said in asked.result()["response"]


@pytest.mark.parametrize("args", [[], ["q1"], ["q1", "maybe"], ["q1", "yes", "x"]])
def test_what_is_neither_yes_nor_no_answers_nothing(ask: Any, args: list[str]) -> None:
    """Exit 2; the question stays open."""
    asked = ask()

    asked.write(id="bad", verb="answer", args=args)
    assert asked.until("bad", "exit") == 2

    asked.write(id="good", verb="answer", args=[asked.question["questionId"], "yes"])
    assert "allow" in asked.result()["response"]


def test_a_reason_that_is_too_long_answers_nothing(ask: Any) -> None:
    """However long it is; the question can be answered after that."""
    asked = ask()
    question = asked.question["questionId"]

    for length in (64 * 1024, 4 * 1024 * 1024):
        asked.write(
            id="long", verb="answer", args=[question, "no"], options={"reason": "x" * length}
        )
        assert asked.until("long", "exit") == 2
    asked.write(id="good", verb="answer", args=[question, "no"], options={"reason": "x" * 60_000})

    assert asked.until("turn", "questionClosed") == question
    assert asked.result()["response"].endswith("x" * 60_000)


def test_no_answer_is_a_no_at_the_end_of_input(ask: Any) -> None:
    """The turn goes on to its end."""
    asked = ask()
    assert asked.process.stdin is not None

    asked.process.stdin.close()

    assert "deny" in asked.result()["response"]
    assert asked.until("turn", "exit") == 0


def test_a_question_closes_when_its_client_ends(ask: Any, shell: Any) -> None:
    """The turn fails then; it does not wait for an answer that nothing reads."""
    (shell.home / "client.py").write_text(CLIENT.replace("said = hear()", "sys.exit(); hear()"))
    asked = ask()

    assert asked.until("turn", "questionClosed") == asked.question["questionId"]
    assert asked.until("turn", "exit") not in (0, 130)
    asked.write(id="late", verb="answer", args=[asked.question["questionId"], "yes"])
    assert asked.until("late", "error")["kind"] == "no-such-question"


def test_a_question_closes_with_its_turn(ask: Any) -> None:
    """By its time limit, and when it is cancelled; it cannot be answered after that."""
    asked = ask(timeout=3)  # the client has asked by then
    assert asked.until("turn", "questionClosed") == asked.question["questionId"]
    assert asked.until("turn", "exit") == 124
    asked.write(id="late", verb="answer", args=[asked.question["questionId"], "yes"])
    assert asked.until("late", "error")["kind"] == "no-such-question"

    other = ask()
    other.write(id="c", verb="cancel", args=["turn"])
    assert other.until("turn", "questionClosed") == other.question["questionId"]
    assert other.until("turn", "exit") == 130
