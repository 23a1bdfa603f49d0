"""Rules and the real client: what it is handed it reads as it stands, all else it asks about."""

from __future__ import annotations

import json
import sys
from typing import Any

from claude_desk import ClaudeDesk as Desk
from claude_plans import MADE, WIDER
from commands import until
from consoles import PtyConsole


def watched(desk: Desk) -> Any:
    """Have the client's arguments and output kept; return a function that reads them."""
    client = desk.folder / "client"
    arguments, out = desk.folder / "arguments", desk.folder / "out"
    client.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >>{arguments}\n"{desk.client}" "$@" | tee -a {out}\n'
    )
    client.chmod(0o700)
    desk.configure(command=str(client), permission_mode="default")

    def read() -> tuple[list[str], list[str]]:
        lines = map(json.loads, out.read_text().splitlines())
        asked = [one["request"] for one in lines if one["type"] == "control_request"]
        names = [one["tool_name"] for one in asked if one["subtype"] == "can_use_tool"]
        return arguments.read_text().splitlines(), names

    return read


def results(desk: Desk, agent: str) -> list[bool]:
    """Return for each call of an agent in order whether it ran."""
    blocks = desk.blocks(agent).values()
    return [not block["isError"] for block in blocks if block["type"] == "tool_result"]


def test_the_name_of_a_tool_is_handed_over_and_the_client_does_not_ask(any_desk: Desk) -> None:
    """It allows that tool and no other."""
    read = watched(any_desk)
    agent = any_desk.new()
    any_desk.ok("permissions", "allow", agent, "Write", "WebFetch", f"Bash({MADE})")
    assert any_desk.send(agent, "write").code == 0
    arguments, asked = read()
    assert "--allowedTools=Write,WebFetch" in arguments
    assert asked == []
    assert (any_desk.work / "asked.txt").read_text() == "asked\n"

    any_desk.send(agent, "edit")
    assert read()[1] == ["Edit", "Bash"]
    assert results(any_desk, agent) == [True, True, False, False]
    any_desk.sound(agent)


def test_a_command_is_compared_here_and_nothing_wider_runs(any_desk: Desk) -> None:
    """The client would let others through if it had the rule."""
    read = watched(any_desk)
    agent = any_desk.new()
    any_desk.ok("permissions", "allow", agent, f"Bash({MADE})")
    done = any_desk.send(agent, "wider")
    assert done.code == 0, done
    arguments, asked = read()
    assert not [one for one in arguments if one.startswith("--allowedTools")]
    assert len(asked) == 1 + len(WIDER)
    assert results(any_desk, agent) == [True, *([False] * len(WIDER))]
    any_desk.sound(agent)


def test_a_hook_is_asked_whatever_is_allowed(any_desk: Desk) -> None:
    """The client is handed nothing that it would not ask about."""
    watched(any_desk)
    any_desk.hook("tool-confirmation", "cat >/dev/null; echo not today >&2; exit 1")
    agent = any_desk.new()
    any_desk.ok("permissions", "allow", agent, "Write")
    assert any_desk.send(agent, "write").code == 0
    assert not (any_desk.work / "asked.txt").exists()


def test_a_yes_for_the_turn_goes_to_the_client_with_the_answer(any_desk: Desk) -> None:
    """It does not ask about that tool again while it runs; in the next turn it does."""
    read = watched(any_desk)
    agent = any_desk.new("--name", "asker")
    program = any_desk.folder / "agentsdir"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentsdir.cli.main "$@"\n')
    program.chmod(0o755)
    variables = {**any_desk.environment, "PS1": "ready> ", "TERM": "xterm", "LINES": "50"}
    prompt = any_desk.ask("write-twice", **any_desk.words)
    with PtyConsole(variables, any_desk.work) as console:
        for turn in (1, 2):
            console.type(f"{program} send -q asker '{prompt}' >{any_desk.folder}/said")
            until(lambda turn=turn: console.shown.count("Allow? [y/N/t/a/f/?] ") == turn, "asked")
            assert "+once" in console.shown
            console.type("t")
            until((any_desk.folder / "said").read_text, "the answer")
            (any_desk.folder / "said").unlink()
    assert read()[1] == ["Write", "Write"]
    assert results(any_desk, agent) == [True, True, True, True]
    any_desk.sound(agent)
