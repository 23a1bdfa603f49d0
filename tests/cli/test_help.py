"""The help of every command is what docs/reference.md shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agentsdir.cli.command_line import COMMANDS, GROUPS
from agentsdir.formats.version import VERSION


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Help is wrapped at the width of the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")


REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


def fences() -> list[str]:
    """Return what docs/reference.md shows: the overview, then each command's help."""
    return re.findall(r"^```text\n(.*?)^```$", REFERENCE.read_text(), re.MULTILINE | re.DOTALL)


def test_the_reference_has_every_command_in_the_order_of_the_overview() -> None:
    """Under the headings of its groups."""
    headings = re.findall(r"^(##+) (.+)$", REFERENCE.read_text(), re.MULTILINE)
    wanted = []
    for group, commands in GROUPS.items():
        wanted += [("##", group), *(("###", name) for name in commands)]
    assert headings == wanted


@pytest.mark.parametrize(("at", "command"), list(enumerate(COMMANDS, 1)), ids=str)
def test_the_help_of_a_command_is_that_of_the_reference(
    shell: Any, capsys: pytest.CaptureFixture[str], at: int, command: str
) -> None:
    """A change of an option, a default or a word shows there: `python docs/reference.py`."""
    done = shell(command, "--help")
    text = done.out + capsys.readouterr().out
    assert done.code == 0
    assert text.rstrip() == fences()[at].rstrip()
    assert text.isascii()


def test_the_overview_is_that_of_the_reference(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line each; no argument at all gives the same where there is no terminal (exit 2)."""
    done = shell("--help")
    text = done.out + capsys.readouterr().out
    assert done.code == 0
    assert text.rstrip() == fences()[0].rstrip()
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
