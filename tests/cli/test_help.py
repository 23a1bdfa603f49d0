"""The help of every command, as it stands."""

from __future__ import annotations

from typing import Any

import pytest

from agentsdir.cli.command_line import COMMANDS
from agentsdir.formats.version import VERSION


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help is wrapped at the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")


@pytest.mark.parametrize("command", list(COMMANDS))
def test_the_help_of_a_command_is_the_one_that_was_reviewed(
    shell: Any, capsys: pytest.CaptureFixture[str], snapshot: Any, command: str
) -> None:
    """A change of an option, a default or a word shows here."""
    done = shell(command, "--help")
    text = done.out + capsys.readouterr().out
    assert done.code == 0
    assert text == snapshot
    assert text.isascii()


def test_the_overview_lists_every_command(
    shell: Any, capsys: pytest.CaptureFixture[str], snapshot: Any
) -> None:
    """With one line each; no argument at all gives the same where there is no terminal (exit 2)."""
    done = shell("--help")
    text = done.out + capsys.readouterr().out
    assert done.code == 0
    assert text == snapshot
    assert all(f"  {name} " in text for name in COMMANDS)
    bare = shell()
    assert (bare.code, bare.out) == (2, text)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_short_and_long_help_are_the_same(
    shell: Any, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """-h is --help."""
    shell(command, "-h")
    short = capsys.readouterr().out
    shell(command, "--help")
    assert capsys.readouterr().out == short != ""


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_one_line(shell: Any, option: str) -> None:
    """The same from this process and from one of its own."""
    import subprocess

    assert shell.ok(option).out == f"agentsdir {VERSION}\n"
    done = shell.process(option, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (0, f"agentsdir {VERSION}\n")
