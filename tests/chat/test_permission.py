"""Permission is asked inside the prompt, while what is typed ahead waits as it was typed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from chat_terminal import ChatTerminal, needs_tmux

pytestmark = needs_tmux

Start = Callable[..., ChatTerminal]

# Speaks as Claude Code does: says a word, asks for a tool once a file named `go` stands, and says
# what the answer was.
CLIENT = """\
import json, pathlib, sys, time
if sys.argv[1:] == ["--version"]: sys.exit(print("2.1.98 (Claude Code)"))
def say(**line): print(json.dumps(line), flush=True)
def hear(): return json.loads(sys.stdin.readline() or "null")
prompt = hear()["message"]["content"]
pathlib.Path("asks").touch()
while not pathlib.Path("go").exists(): time.sleep(0.01)
say(type="control_request", request_id="r", request=dict(subtype="can_use_tool",
    tool_name="Edit", tool_use_id="t", input=dict(file_path="a.py", old_string="one\\x1b[2J",
    new_string="two")))
answer = hear()
while answer["type"] != "control_response": answer = hear()
said = answer["response"]["response"]
say(type="assistant", uuid="u1", message=dict(id="m1", role="assistant",
    content=[dict(type="text", text="I was told: " + json.dumps(said))]))
say(type="result", subtype="success", is_error=False, result="x")
"""


@pytest.fixture
def asking(chat: Start, tmp_path: Path) -> ChatTerminal:
    """Return a prompt with an agent `asker`, whose client is about to ask."""
    config = tmp_path / "home" / ".config" / "agentsdir"
    config.mkdir(parents=True)
    (tmp_path / "client.py").write_text(CLIENT)
    command = [sys.executable, str(tmp_path / "client.py")]
    (config / "config.toml").write_text(f"[providers.claude]\ncommand = {command!r}\n")
    terminal = chat()
    terminal.line("/new asker --provider claude")
    terminal.wait_for("^── asker · claude")
    return terminal


def ask(terminal: ChatTerminal, prompt: str) -> None:
    """Send a prompt, and wait until the client has it."""
    terminal.line(prompt)
    terminal.wait_until(lambda _: (terminal.home / "asks").exists(), "the client")


def test_it_waits_while_typing_ahead_stays_intact(asking: ChatTerminal) -> None:
    """No letter of a half typed line answers; Tab does, and the line is there afterwards."""
    ask(asking, "edit it")
    asking.type("and then, y")
    asking.wait_for("^> and then, y")
    (asking.home / "go").touch()
    shown = asking.wait_for("^agent asker .* wants to use Edit in")
    assert "  -one\\x1b[2J\n  +two" in shown
    assert "y yes · n no · r no, with a reason" in shown
    asking.type("es, n")
    asking.wait_for("^> and then, yes, n")
    asking.wait_for_status("Tab answers the question; your text stays")
    asking.keys("Tab")
    asking.wait_for_status("asker · working")
    asking.type("y")
    shown = asking.wait_for('^I was told: .*"behavior": "allow"')
    assert "yes · Edit" in shown
    assert "wants to use" not in shown
    asking.type("!")
    asking.wait_for("^> and then, yes, n!")


def test_the_model_gets_the_reason_of_a_no(asking: ChatTerminal) -> None:
    """The line of the reason is one of its own."""
    ask(asking, "edit it")
    (asking.home / "go").touch()
    asking.wait_for("wants to use Edit")
    asking.type("for later")
    asking.wait_for("^> for later")
    asking.keys("Tab")
    asking.wait_for_status("asker · working")
    asking.type("r")
    asking.wait_for("^reason>")
    asking.line("use three")
    shown = asking.wait_for('^I was told: .*"behavior": "deny"')
    assert "use three" in shown[shown.index("I was told") :]
    asking.wait_for("^> for later")


def test_an_interrupt_takes_the_question_away(asking: ChatTerminal) -> None:
    """And no answer is a no."""
    ask(asking, "edit it")
    (asking.home / "go").touch()
    asking.wait_for("wants to use Edit")
    asking.keys("C-c")
    asking.wait_until(lambda shown: "wants to use" not in shown, "no question")
    asking.wait_for("^interrupted")


def test_a_yes_for_good_asks_no_more(asking: ChatTerminal) -> None:
    """The rule is kept for this agent, in the user's own configuration."""
    (asking.home / "go").touch()
    ask(asking, "edit it")
    asking.wait_for("^always any Edit: t this turn · a this agent · f this folder$")
    asking.answer("a")
    asking.wait_for("^yes, always any Edit for this agent · Edit: ")
    asking.wait_for('"behavior": "allow"')
    grants = json.loads((asking.home / ".config/agentsdir/grants.json").read_text())
    assert [one["rule"] for one in grants["rules"]] == ["Edit"]
