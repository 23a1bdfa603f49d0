"""The program as a process: what it says when its surroundings or its own files are damaged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

# What a process needs before it can read its arguments, and what a command needs.
ENTRY = ("environment", "command_line", "output")
COMMAND = ("commands.send", "turn_printer")


def test_a_root_whose_links_go_round_and_a_home_of_no_user_are_named(tmp_path: Path) -> None:
    """In one line: a process looks up the folders of its user before it reads a command."""
    (tmp_path / "loop").symlink_to("loop")
    surroundings = {"HOME": "~nobody-of-that-name", "AGENTSDIR_ROOT": str(tmp_path / "loop")}

    done = subprocess.run(
        [sys.executable, "-m", "agentsdir.cli.main", "send", "a", "b"],
        env=surroundings, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert "Traceback" not in done.stderr
    assert done.returncode in (2, 10, 12), done  # which, is up to the Python
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("part", [*ENTRY, *COMMAND])
def test_a_missing_module_is_named_in_one_line(tmp_path: Path, part: str) -> None:
    """As when an installation was broken off."""
    program = f"""
import sys
sys.modules["agentsdir.cli.{part}"] = None
sys.argv[1:] = ["send", "a", "b"]
from agentsdir.cli.main import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert "cannot be loaded: " in done.stderr
    assert part in done.stderr


def test_a_module_that_cannot_be_loaded_has_a_kind(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a limit of memory, where the system maps no more libraries."""
    monkeypatch.setitem(sys.modules, "agentsdir.cli.commands.send", None)

    done = shell("send", "a", "b", "--json")

    assert (done.code, done.out) == (1, "")
    assert (done.error["kind"], done.error["exitCode"]) == ("not-loaded", 1)
    assert "agentsdir.cli.commands.send" in done.error["message"]
