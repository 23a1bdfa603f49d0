"""A turn at a real terminal: what stands where, the line that is redrawn, and who may draw."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import orjson
import pytest
from commands import until
from consoles import PtyConsole, screen
from typist import Typist

from agentsdir.cli.status_line import StatusLine

SPINNER = re.compile("[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]")
ERASE = "\r\x1b[J"


def lines(shown: str) -> list[str]:
    """Return the lines that a terminal shows in the end, whatever took how long."""
    return [re.sub(r"\d+(\.\d)? s", "N s", line) for line in screen(shown)]


@pytest.fixture
def worker(shell: Any) -> str:
    """Return an agent that says a word, runs a tool for a second, and answers."""
    lines: list[dict[str, Any]] = []
    for _ in range(2):
        lines += [
            {"type": "turn"},
            _whole("assistant_text", "t", content="Let me see."),
            _whole("tool_use", "u", toolName="Bash", toolUseId="c", input={"command": "make"},
                   status="running"),
            {"type": "sleep", "seconds": 1},
            _whole("tool_result", "r", toolUseId="c", output="1\n2\n3", isError=False),
            _whole("assistant_text", "a", content="Done."),
        ]  # fmt: skip
    script = shell.cwd / "work.jsonl"
    script.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return str(shell.script(str(script), "--name", "fox"))


def _whole(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    block = {"type": kind, "id": name, **fields}
    return {"type": "block_complete", "blockId": name, "block": block}


def watched(shell: Any, *arguments: str, stdout: Any = None, **variables: str) -> str:
    """Run a command at a terminal, and return all that was written there."""
    given = {**shell.environment(), "TERM": "xterm", "LC_ALL": "C.UTF-8", **variables}
    with Typist() as person:
        done = subprocess.run(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            env=given,
            cwd=shell.cwd,
            stdin=subprocess.DEVNULL,
            stdout=person.slave if stdout is None else stdout,
            stderr=person.slave,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0
    return person.shown


WORK = ["● Bash(make)", "  └ 3 lines · N s"]
END = "1 tool call · N s"


@pytest.mark.feature("C-02", "C-12")
def test_the_work_stands_between_the_texts_of_the_answer(shell: Any, worker: str) -> None:
    """With an empty line between what was done and what was said."""
    shown = watched(shell, "send", worker, "go")
    assert lines(shown) == ["Let me see.", "", *WORK, "", "Done.", "", END, ""]


def test_an_outcome_without_a_result_stands_before_the_text_that_follows_it(shell: Any) -> None:
    """Not amid the first line of that: the text comes in pieces."""
    call = {"toolName": "Bash", "toolUseId": "c", "input": {"command": "make"}}
    text = {"type": "assistant_text", "id": "a", "content": ""}
    events = [
        {"type": "turn"},
        _whole("tool_use", "u", **call, status="pending"),
        {"type": "block_update", "blockId": "u", "updates": {"status": "error"}},
        {"type": "block_start", "blockId": "a", "block": text},
        {"type": "text_delta", "blockId": "a", "delta": "It fai"},
        {"type": "text_delta", "blockId": "a", "delta": "led."},
        _whole("assistant_text", "a", content="It failed."),
    ]
    script = shell.cwd / "late.jsonl"
    script.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    shown = lines(watched(shell, "send", shell.script(str(script)), "go"))
    assert shown[:4] == ["● Bash(make)", "  └ failed", "", "It failed."]


def test_a_line_is_redrawn_while_a_call_runs_and_is_gone_in_the_end(
    shell: Any, worker: str
) -> None:
    """It says what runs."""
    shown = watched(shell, "send", worker, "go")
    drawn = [piece for piece in shown.split(ERASE) if SPINNER.search(piece)]
    assert all(piece.endswith("\r") for piece in drawn)
    assert sum("Bash(make)" in piece for piece in drawn) > 1
    assert not SPINNER.search("".join(lines(shown)))


@pytest.mark.feature("C-11")
def test_the_answer_goes_into_a_file_and_the_work_to_the_terminal(shell: Any, worker: str) -> None:
    """The file has what a pipe would get."""
    path = shell.cwd / "answer"
    with path.open("wb") as file:
        shown = watched(shell, "send", worker, "go", stdout=file)
    assert lines(shown) == [*WORK, END, ""]
    assert path.read_text() == "Let me see.\n\nDone.\n"


def test_a_pipe_gets_the_answer_and_the_terminal_nothing(shell: Any, worker: str) -> None:
    """A pager may be behind it, and draw there itself."""
    reading, writing = os.pipe()
    assert watched(shell, "send", worker, "go", stdout=writing) == ""
    os.close(writing)
    assert os.read(reading, 999) == b"Let me see.\n\nDone.\n"
    os.close(reading)


@pytest.mark.parametrize("command", ["send", "spawn"])
def test_quiet_prints_the_answer_alone(shell: Any, worker: str, command: str) -> None:
    """Of a subagent, too."""
    target = ("--parent", worker) if command == "spawn" else ()
    given = ("go",) if command == "spawn" else (worker, "go")
    shown = watched(shell, command, *given, *target, "-q")
    assert shown == "Let me see.\n\nDone.\n"


@pytest.mark.parametrize("form", ["--json", "--events"])
def test_what_is_for_programs_is_all_that_is_printed(shell: Any, worker: str, form: str) -> None:
    """At a terminal, too."""
    shown = watched(shell, "send", worker, "go", form)
    assert "●" not in shown
    assert ERASE not in shown


def test_the_subagents_work_is_shown(shell: Any, worker: str) -> None:
    """`spawn` shows it as `send` does."""
    shown = watched(shell, "spawn", "go", "--parent", worker)
    assert lines(shown) == ["Let me see.", "", *WORK, "", "Done.", "", END, ""]


def test_a_terminal_that_can_redraw_nothing_gets_lines_only(shell: Any, worker: str) -> None:
    """And in ASCII, where the locale names no UTF-8."""
    shown = watched(shell, "send", worker, "go", TERM="dumb", LC_ALL="C")
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "* Bash(make)\n  -> 3 lines, " in shown


def test_without_colours_the_line_is_still_redrawn(shell: Any, worker: str) -> None:
    """NO_COLOR is about colours."""
    shown = watched(shell, "send", worker, "go", NO_COLOR="1")
    assert set(re.findall(r"\x1b\[[0-9;]*[A-Za-z]", shown)) == {"\x1b[J"}


def test_turns_that_run_before_are_waited_for_in_sight(shell: Any, worker: str) -> None:
    """The messages that wait come first."""
    shell.ok("queue", worker, "earlier")
    shown = watched(shell, "send", worker, "go")
    assert "other turns run" in shown
    assert lines(shown) == ["Let me see.", "", *WORK, "", "Done.", "", END, ""]


def test_after_ctrl_c_the_prompt_stands_on_a_line_of_its_own(shell: Any, worker: str) -> None:
    """What ran is named, and nothing of the line that was redrawn is left."""
    with console(shell) as terminal:
        terminal.type(f"agentsdir send {worker} go")
        until(lambda: SPINNER.search(terminal.shown), "that the line is drawn")
        terminal.type_keys(b"\x03")
        until(lambda: terminal.shown.endswith("ready> "), "that the shell goes on")
        # The terminal itself shows ^C at the cursor.
        shown = [line.replace("^C", "") for line in lines(terminal.raw)]
    assert shown[-4:] == [WORK[0], "  └ no result", END, "ready>"]


def test_nothing_is_redrawn_for_a_job_in_the_background(shell: Any, worker: str) -> None:
    """It would stand in what the user types meanwhile."""
    with console(shell) as terminal:
        terminal.type(f"agentsdir send {worker} go & wait")
        until(lambda: "1 tool call" in terminal.shown, "that the turn ends")
        assert ERASE not in terminal.raw
        assert "● Bash(make)" in re.sub(r"\x1b\[[0-9;]*m", "", terminal.shown)


class KeyedConsole(PtyConsole):
    """A shell at a pty, whose keys and bytes are at hand."""

    def type_keys(self, keys: bytes) -> None:
        """Type keys, without Enter."""
        os.write(self._master, keys)

    @property
    def raw(self) -> str:
        """Return what was written to the terminal, as it came."""
        return self._shown.decode(errors="replace").replace("\r\n", "\n")


def console(shell: Any) -> KeyedConsole:
    """Return a shell in which `agentsdir` is this program."""
    binaries = shell.home / "bin"
    binaries.mkdir()
    program = binaries / "agentsdir"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m agentsdir.cli.main "$@"\n')
    program.chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    given = {"PATH": path, "PS1": "ready> ", "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    return KeyedConsole({**shell.environment(), **given}, shell.cwd)


@pytest.mark.parametrize(
    ("columns", "width"), [(0, 80), (20, 20), (3, 3), (132, 132), (65535, 500)]
)
def test_a_terminal_that_lies_about_its_size_is_not_believed(columns: int, width: int) -> None:
    """No columns are 80, and beyond 500 nothing is gained."""
    with Typist() as person:
        termios.tcsetwinsize(person.slave, (24, columns))
        assert StatusLine(person.slave).width == width


def test_nothing_is_drawn_while_a_question_is_open_in_any_process() -> None:
    """It is drawn again once the terminal is not locked any more, and never while it is paused."""
    with Typist() as person:
        status = StatusLine(person.slave)
        lock = os.open(person.terminal, os.O_RDONLY | os.O_NOCTTY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        status.draw("over the question")
        os.close(lock)
        with status.paused():
            status.draw("in a pause")
        status.draw("now")
        until(lambda: "now" in person.shown, "that the line is drawn")
        assert person.shown == f"{ERASE} now\r"


def test_a_terminal_that_is_gone_breaks_nothing() -> None:
    """The turn goes on."""
    with Path(os.devnull).open("rb") as unwritable:
        status = StatusLine(unwritable.fileno())
        status.draw("lost")
        status.erase()
