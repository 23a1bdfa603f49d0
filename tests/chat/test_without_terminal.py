"""`chat` where there is no terminal to talk at: standard input is one prompt, or it is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from chat_terminal import PROGRAM, ChatTerminal, needs_tmux
from commands import Done


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with one agent, of the name demo."""
    assert chat_here(tmp_path, "new", "--name", "demo").code == 0
    return tmp_path


def chat_here(home: Path, *words: str, given: str = "", **variables: str) -> Done:
    """Run `agentsdir` with words and a standard input, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={"HOME": str(home), "AGENTSDIR_PROVIDER": "echo", **variables},
        cwd=home,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_standard_input_is_one_prompt_for_the_agent(home: Path) -> None:
    """All its lines; the answer is what `send` prints."""
    assert chat_here(home, "chat", "demo", given="one\ntwo\n") == Done(0, "one\ntwo\n", "")
    assert chat_here(home, "chat", "@last", given="-").out == "-\n"


def test_without_an_agent_nothing_is_sent(home: Path) -> None:
    """Standard input may be anything there, and the last agent another one than meant."""
    done = chat_here(home, "chat", given="rm -rf\n")
    assert (done.code, done.out) == (2, "")
    assert "there is no terminal to talk at" in done.err
    assert chat_here(home, "chat", "missing", given="hi").code == 10


def test_alone_it_prints_its_help(home: Path) -> None:
    """On standard output, with the exit code of a wrong command line."""
    for words in ((), ("--root", "elsewhere")):
        done = chat_here(home, *words, given="hi")
        assert (done.code, done.err) == (2, "")
        assert done.out.startswith("Usage: agentsdir ")


def test_the_line_protocol_takes_no_agent(home: Path) -> None:
    """Each request names its own."""
    assert chat_here(home, "chat", "demo", "--jsonl").code == 2


@needs_tmux
@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_moves_no_cursor_is_named(tmp_path: Path, term: str) -> None:
    """An editor's shell window, for example."""
    terminal = ChatTerminal(tmp_path, 100, 30, {})
    try:
        terminal.start("--version")
        terminal.tmux("respawn-pane", "-k", "env", f"TERM={term}", sys.executable, "-c", PROGRAM)
        terminal.wait_for("^agentsdir: this terminal moves no cursor")
        terminal.wait_until(lambda _: terminal.has_ended, "the end")
    finally:
        terminal.close()


@needs_tmux
def test_an_agent_that_is_not_there_is_an_error_and_no_prompt(tmp_path: Path) -> None:
    """With the exit code of any command."""
    terminal = ChatTerminal(tmp_path, 100, 30, {})
    try:
        terminal.start("chat", "missing")
        terminal.wait_for("^agentsdir: no agent 'missing'")
        terminal.wait_until(lambda _: terminal.has_ended, "the end")
    finally:
        terminal.close()
