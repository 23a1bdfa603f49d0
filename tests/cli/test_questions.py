"""Questions at a real terminal: keys typed ahead, two agents, jobs in the background, a hook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import until
from consoles import CONSOLES, PtyConsole

# Speaks as Claude Code does: asks for one tool once a file named `go` stands, and says the answer.
CLIENT = """\
import json, pathlib, sys, time
if sys.argv[1:] == ["--version"]: sys.exit(print("2.1.98 (Claude Code)"))
def say(**line): print(json.dumps(line), flush=True)
def hear(): return json.loads(sys.stdin.readline() or "null")
prompt = hear()["message"]["content"]
pathlib.Path(f"asks-{prompt}").touch()
while not pathlib.Path("go").exists(): time.sleep(0.01)
say(type="control_request", request_id="r", request=dict(subtype="can_use_tool",
    tool_name="Bash", tool_use_id="t", input=dict(command="rm -rf " + prompt)))
said = hear()["response"]["response"]["behavior"]
say(type="assistant", uuid="u1", message=dict(id="m1", role="assistant",
    content=[dict(type="text", text=f"{prompt}: {said}")]))
say(type="result", subtype="success", is_error=False, result="x")
"""


class Desk:
    """A user whose client asks, and their console."""

    def __init__(self, shell: Any, console: Any, variables: dict[str, str]) -> None:
        self.shell = shell
        self.console = console
        self.variables = variables

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        self.console.type(line)

    def sees(self, text: str, times: int = 1) -> None:
        """Wait until something is shown so many times."""
        until(lambda: self.console.shown.count(text) >= times, f"that {text!r} is shown")

    def begun(self, prompt: str) -> None:
        """Wait until the client has a prompt."""
        until((self.shell.cwd / f"asks-{prompt}").exists, f"that the client has {prompt!r}")

    def go(self) -> None:
        """Have the clients ask."""
        (self.shell.cwd / "go").touch()

    def said(self, name: str) -> str:
        """Wait for what a `send` wrote into a file, and return it."""
        path = self.shell.cwd / name
        until(lambda: path.exists() and path.read_text().endswith("\n"), f"an answer in {name}")
        return str(path.read_text().strip())


@pytest.fixture(params=CONSOLES)
def desk(request: pytest.FixtureRequest, shell: Any) -> Iterator[Desk]:
    """Return a user with two agents, `one` and `two`, at a console."""
    (shell.home / "client.py").write_text(CLIENT)
    config = shell.home / ".config" / "agentsdir"
    config.mkdir(parents=True)
    command = [sys.executable, str(shell.home / "client.py")]
    (config / "config.toml").write_text(f"[providers.claude]\ncommand = {command!r}\n")
    binaries = shell.home / "bin"
    binaries.mkdir()
    program = binaries / "agentsdir"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentsdir.cli.main "$@"\n')
    program.chmod(0o755)
    for name in ("one", "two"):
        shell.new("--provider", "claude", "--name", name)
    variables = {
        **shell.environment(),
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PS1": "ready> ",
        "TERM": "xterm",
    }
    make: Callable[[dict[str, str], Path], Any] = CONSOLES[request.param]
    with make(variables, shell.cwd) as console:
        desk = Desk(shell, console, variables)
        desk.sees("ready>")
        yield desk


ASKED = "wants to use Bash"
PROMPT = "Allow? [y/N"


def test_keys_typed_ahead_answer_no_question_of_two_agents(desk: Desk) -> None:
    """Each question stands alone and says whose it is; the answers are those typed to it."""
    desk.type("(agentsdir send -q one a >one.out & agentsdir send -q two b >two.out & wait)")
    desk.begun("a")
    desk.begun("b")
    for _ in range(3):
        desk.type("y")
    desk.sees("y\ny\ny\n")
    desk.go()

    desk.sees(PROMPT)
    desk.sees("waits with a question: another one is open at this terminal")
    desk.sees(PROMPT, 2)
    shown = desk.console.shown
    assert shown.count(ASKED) == 1
    first, second = ("one", "two") if "agent one (" in shown.split(ASKED)[0] else ("two", "one")
    assert f"in {desk.shell.cwd}:" in shown
    desk.type("n")
    desk.sees(ASKED, 2)
    desk.sees(PROMPT, 3)
    assert f"agent {second} (" in desk.console.shown.split(ASKED)[1]
    assert not (desk.shell.cwd / f"{second}.out").read_text()
    desk.type("y")

    letters = {"one": "a", "two": "b"}
    assert desk.said(f"{first}.out") == f"{letters[first]}: deny"
    assert desk.said(f"{second}.out") == f"{letters[second]}: allow"


def test_an_answer_for_the_folder_answers_the_questions_that_wait(shell: Any, desk: Desk) -> None:
    """They are checked against the rules again when it is their turn."""
    desk.go()
    desk.type("(agentsdir send -q one a >one.out & agentsdir send -q two a >two.out & wait)")
    desk.sees("waits with a question: another one is open at this terminal")
    desk.sees(PROMPT, 2)
    desk.type("f")
    assert (desk.said("one.out"), desk.said("two.out")) == ("a: allow", "a: allow")
    assert desk.console.shown.count(ASKED) == 1
    assert len(shell.ok("permissions").rows) == 1


def test_a_note_of_another_process_leaves_the_prompt_whole(desk: Desk) -> None:
    """The note stands on its own line, and the prompt is drawn again below it."""
    desk.go()
    desk.type("(agentsdir send -q one a >one.out & agentsdir send -q two b >two.out & wait)")
    note = "waits with a question: another one is open at this terminal\n"
    desk.sees(note)
    prompt = f"{PROMPT}/t/a/f/?]"
    until(lambda: desk.console.shown.rstrip().endswith(prompt), "that the prompt is drawn again")
    before, after = desk.console.shown.split(note)
    assert before.splitlines()[-1].startswith("agentsdir: agent ")
    assert after.strip() == prompt
    desk.type("y")
    desk.sees(ASKED, 2)
    desk.sees(PROMPT, 3)
    desk.type("y")
    assert (desk.said("one.out"), desk.said("two.out")) == ("a: allow", "b: allow")


def test_a_word_that_is_no_answer_gets_one_line_of_help(desk: Desk) -> None:
    """All of it is shown for a question mark."""
    desk.go()
    desk.type("agentsdir send -q one a >one.out")
    desk.sees(PROMPT)
    desk.type("maybe")
    desk.sees(PROMPT, 2)
    said = desk.console.shown.split("maybe\n")[1].split(PROMPT)[0]
    assert said == "That is no answer: y, n, n REASON, t, a, f, or ? for help.\n"
    desk.type("n")
    assert desk.said("one.out") == "a: deny"


def test_no_status_is_drawn_over_a_question(desk: Desk) -> None:
    """It is gone before the question, and comes again after the answer."""
    desk.type("agentsdir send one a")
    desk.begun("a")
    desk.sees("waiting for the model")
    desk.go()
    desk.sees(PROMPT)
    until(lambda: desk.console.shown.rstrip().endswith("]"), "that the prompt is whole")
    asked = desk.console.shown
    assert "waiting for the model" not in asked.split(ASKED)[1]
    time.sleep(0.5)  # in which the line would be drawn five times
    assert desk.console.shown == asked
    desk.type("y")
    desk.sees("a: allow")


def test_a_yes_for_good_is_asked_for_once_and_a_no_may_say_why(desk: Desk) -> None:
    """The next turn's question is answered by the rule; the client reads the reason."""
    desk.go()
    desk.type("agentsdir send -q one a >one.out")
    desk.sees(f"{PROMPT}/t/a/f/?] ")
    desk.type("?")
    desk.sees("yes, and always exactly this command for this agent")
    desk.type("a")
    assert desk.said("one.out") == "a: allow"
    desk.type("agentsdir send -q one a >again.out")
    assert desk.said("again.out") == "a: allow"
    assert desk.console.shown.count(ASKED) == 1
    (row,) = desk.shell.ok("permissions").rows
    assert (row["name"], row["rule"]) == ("one", "Bash(rm -rf a)")

    desk.type("agentsdir send --json one b >denied.out")
    desk.sees(ASKED, 2)
    until(lambda: desk.console.shown.rstrip().endswith("?]"), "that the prompt is whole")
    desk.type("n not on a Sunday")
    assert "the user said no: not on a Sunday" in desk.said("denied.out")


def test_a_job_in_the_background_asks_once_it_is_in_the_foreground(desk: Desk) -> None:
    """Until then it says that it has a question; keys for the shell are the shell's."""
    desk.type("agentsdir send one a >one.out &")
    desk.begun("a")
    desk.go()
    desk.sees("has a question: bring this job to the foreground (`fg`)")
    desk.type("echo y$((1+1))")
    desk.sees("y2\n")
    assert PROMPT not in desk.console.shown
    desk.type("fg")
    desk.sees(PROMPT)
    desk.type("y")
    assert desk.said("one.out") == "a: allow"


def test_a_job_that_no_shell_can_bring_back_is_denied(desk: Desk) -> None:
    """Its shell is gone, so that it would wait for ever."""
    desk.type("bash -c 'agentsdir send one a >one.out &'")
    desk.begun("a")
    desk.go()
    assert desk.said("one.out") == "a: deny"
    desk.sees("this job is in the background, and no shell can bring it back")
    assert PROMPT not in desk.console.shown


def test_a_list_says_which_agent_waits_for_an_answer(desk: Desk) -> None:
    """In JSON, in the table, and in one that is watched, with a bell; no more once it is given."""
    desk.type("agentsdir send -q one a >one.out")
    desk.begun("a")
    with PtyConsole(desk.variables, desk.shell.cwd) as watcher:
        watcher.type("agentsdir list --watch")
        until(lambda: "1 running, 0 waiting" in watcher.shown, "that the agent works")
        assert "\x07" not in watcher.shown
        desk.go()
        desk.sees(PROMPT)

        (row,) = desk.shell.ok("list", "--state", "waiting").rows
        assert (row["name"], row["status"]) == ("one", "running")
        assert row["question"]["toolName"] == "Bash"
        table = desk.shell.ok("list", "--state", "waiting", tty=True).out.splitlines()
        assert table[1].split()[1:3] == ["one", "waiting"]
        until(lambda: "0 running, 1 waiting" in watcher.shown, "that the agent waits")
        assert watcher.shown.count("\x07") == 1

        desk.type("y")
        assert desk.said("one.out") == "a: allow"
        until(lambda: watcher.shown.count("\x07") == 2, "that the agent has finished")
    assert desk.shell.ok("list", "--state", "waiting").rows == []
