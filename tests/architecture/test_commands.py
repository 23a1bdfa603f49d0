"""Every command explains itself, by example, and stands in docs/commands.md."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentsdir.cli.command_line import COMMANDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/commands.md").read_text()


def help_of(*arguments: str) -> str:
    """Return what `agentsdir ARGUMENTS --help` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "agentsdir.cli.main", *arguments, "--help"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_group_lists_every_command() -> None:
    """`agentsdir --help` names each command with its line of summary."""
    text = help_of()

    listed = dict(re.findall(r"^  ([\w-]+)  +(\S.*)$", text.partition("Daily:")[2], re.MULTILINE))
    assert listed == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_leads_with_an_example(command: str) -> None:
    """`--help` exits 0 and shows the command in use before it lists arguments and options."""
    text = help_of(command)

    before, separator, _ = text.partition("Options:")
    example = re.search(r"Examples?:\n(.+)", before)
    assert separator
    assert example is not None
    assert f"agentsdir {command}" in before.partition("\n")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_in_the_documents(command: str) -> None:
    """The table of docs/commands.md has a row for it."""
    assert re.search(rf"^\| `{command}[ `]", PAGE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_a_module_of_its_name(command: str) -> None:
    """The code of `agentsdir X` is found where one looks for it."""
    assert (ROOT / "cli" / "commands" / f"{command.replace('-', '_')}.py").is_file()
