"""A bar shows on a terminal how far a long command is, and nowhere else."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from commands import until
from consoles import PtyConsole, screen
from typist import Typist

from agentsdir.cli.environment import Environment
from agentsdir.cli.progress import progress, working


class Stream(TextIOWrapper):
    """A stream that says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(BytesIO(), "utf-8", newline="")
        self._terminal = terminal

    def isatty(self) -> bool:
        """Return what it was made with."""
        return self._terminal

    @property
    def shown(self) -> str:
        """All that was written."""
        self.flush()
        return self.buffer.getvalue().decode()  # type: ignore[attr-defined]


def surroundings(*, stdout: bool, stderr: bool) -> Environment:
    """Return an environment whose streams are terminals or not."""
    streams = Stream(terminal=stdout), Stream(terminal=stderr)
    return Environment(BytesIO(), *streams, {}, Path("/"), Path("/"))


def shown_by(environment: Environment, total: int = 100, delay: float = 0.0) -> str:
    """Return what stderr got from four steps."""
    with progress(environment, total, delay=delay) as advance:
        for _ in range(4):
            advance(total // 4)
    assert environment.stdout.shown == ""
    return environment.stderr.shown


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)


def test_a_bar_is_shown_on_a_terminal_and_taken_away() -> None:
    """With the cursor hidden meanwhile, and back in the end; and by no thread."""
    before = threading.active_count()
    shown = shown_by(surroundings(stdout=False, stderr=True))
    assert "25/100 bytes" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")
    assert shown.endswith("\x1b[2K")
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("stdout", "stderr", "total", "delay"),
    [
        (True, True, 100, 0.0),
        (False, False, 100, 0.0),
        (False, True, 0, 0.0),
        (False, True, 9, 60.0),
    ],
    ids=["blocks on the terminal", "no terminal", "nothing to do", "not long"],
)
def test_no_bar_is_shown(*, stdout: bool, stderr: bool, total: int, delay: float) -> None:
    """Where it would stand between blocks, or in a file, or come and go at once."""
    assert shown_by(surroundings(stdout=stdout, stderr=stderr), total, delay) == ""


def test_the_bar_is_taken_away_when_the_work_breaks_off() -> None:
    """So that the message of the error stands alone."""
    environment = surroundings(stdout=False, stderr=True)

    def break_off() -> None:
        with progress(environment, 100, delay=0.0) as advance:
            advance(1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert environment.stderr.shown.endswith("\x1b[2K")


def test_parse_shows_one_while_it_reads_a_folder(tmp_path: Path) -> None:
    """The blocks are in the file as without a terminal."""
    row = (
        '{"parentUuid":null,"isSidechain":false,"type":"user","uuid":"u","sessionId":"s","message":'
        '{"role":"user","content":"%s"},"timestamp":"2026-01-02T03:04:05.678Z"}\n' % ("x" * 100)
    )
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_text(
            "".join(row.replace('"u"', f'"u{number}-{at}"') for at in range(10_000))
        )
    variables = {"PATH": str(Path(sys.executable).parent) + ":/usr/bin:/bin", "HOME": str(tmp_path)}
    variables["TERM"] = "xterm"
    operands = " ".join(["."] * 4)
    with PtyConsole(variables, tmp_path) as console:
        console.type(f"agentsdir parse --jobs 1 --view all {operands} > out; echo ended=$?")
        until(lambda: "ended=0" in console.shown, "the end of parse")
    assert "MB" in console.shown
    assert (tmp_path / "out").read_bytes().count(b"\n") == 4 * 4 * 10_000


SHOWN = {
    "validate": (["validate", "-"], "checked 0 agents, 0 files · "),
    "import": (["import", "-"], "importing · "),
}


@pytest.mark.parametrize(("arguments", "words"), SHOWN.values(), ids=SHOWN)
def test_a_command_that_works_for_long_says_so_at_a_terminal(
    shell: Any, arguments: list[str], words: str
) -> None:
    """Here it waits for its input. In the end the line is gone, and only what is said stays."""
    with Typist() as person:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", *arguments],
            env={**shell.environment(), "TERM": "xterm"},
            cwd=shell.cwd,
            stdin=subprocess.PIPE,
            stdout=person.slave,
            stderr=person.slave,
        )
        until(lambda: words in person.shown, "that it works")
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) != 0
    left = [line for line in screen(person.shown) if line]
    assert left
    assert all(line.startswith("agentsdir: ") and " · " not in line for line in left), left


def test_findings_stand_above_the_line_that_says_how_far_validate_is(shell: Any) -> None:
    """Each on a line of its own, whole."""
    with Typist() as person:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentsdir.cli.main", "validate", "-"],
            env={**shell.environment(), "TERM": "xterm"},
            cwd=shell.cwd,
            stdin=subprocess.PIPE,
            stdout=person.slave,
            stderr=person.slave,
        )
        assert process.stdin is not None
        until(lambda: "checked 0 agents" in person.shown, "that it works")
        process.stdin.write(b'{"type":"trusted","root":"x"}\n' * 3)
        process.stdin.close()
        assert process.wait(20) == 1
    lines = [line for line in screen(person.shown) if line]
    assert [line.partition(":")[0] for line in lines] == ["-", "-", "-", "agentsdir"], lines


def test_a_pipe_and_a_dumb_terminal_get_no_line(shell: Any) -> None:
    """And nothing is left of the timer."""
    for terminal, term in ((False, "xterm"), (True, "dumb")):
        environment = surroundings(stdout=terminal, stderr=terminal)
        environment.variables = {"TERM": term}
        with working(environment, lambda: "at work", delay=0.01):
            time.sleep(0.1)
        assert environment.stderr.shown == ""
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert shell.ok("list").err == ""
