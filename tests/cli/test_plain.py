"""`send` and `parse` without options, understood without the library that reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentsdir.cli import command_line, invocation

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

FIXTURES = Path(__file__).parents[2] / "fixtures" / "claude"
LINES: list[tuple[str, ...]] = [
    ("AGENT", "hello"),
    ("AGENT", "-"),
    ("AGENT",),
    ("nobody", "hello"),
    ("AGENT", ""),
    ("", "hello"),
    ("hello", "AGENT"),
    ("AGENT", "two", "prompts"),
    ("AGENT", "é ü"),
    ("-",),
]


def said(shell: Shell, agent: str, words: tuple[str, ...]) -> tuple[int, str, str]:
    """Return what a line comes to, with the agent's id in place."""
    done = shell("send", *(agent if word == "AGENT" else word for word in words), stdin=b"piped")
    return done.code, done.out.replace(agent, "ID"), re.sub(r"[a-z0-9]{24}", "ID", done.err)


@pytest.mark.parametrize("words", LINES)
def test_a_plain_line_is_understood_as_the_library_does(
    shell: Shell, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers, errors and exit codes are the same."""
    assert invocation._plain(["send", *words]) == "send"
    plain = said(shell, shell.new(), words)
    read: list[Any] = []

    def by_library(arguments: list[str], env: Any) -> int:
        read.append(arguments)
        return command_line.invoke(arguments, env)

    monkeypatch.setattr(invocation, "_invoke", by_library)
    assert said(shell, shell.new(), words) == plain
    assert read


@pytest.mark.parametrize(
    "words",
    [("one.jsonl",), ("one.jsonl", "two.jsonl"), (".",), ("",), ("-",), ("nothing",), ("empty",),
     ("one.jsonl", "nothing"), ("one.jsonl", "empty"), ("torn.jsonl",), ("0123abcd",),
     ("one.jsonl", "x" * 300)],
)  # fmt: skip
def test_transcripts_are_parsed_as_the_library_has_it(
    shell: Shell, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks, what is said of damage, and exit codes are the same."""
    for name, recording in (("one", "hello-2.1.98"), ("two", "bg-2.1.98")):
        shutil.copy(FIXTURES / f"{recording}.jsonl", shell.cwd / f"{name}.jsonl")
    (shell.cwd / "torn.jsonl").write_bytes((shell.cwd / "one.jsonl").read_bytes()[:-20])
    (shell.cwd / "empty").touch()

    assert invocation._plain(["parse", *words]) == "parse"
    plain = shell("parse", *words, stdin=b'{"type":"user"')
    monkeypatch.setattr(invocation, "_plain", lambda _arguments: None)
    by_library = shell("parse", *words, stdin=b'{"type":"user"')

    assert plain == by_library


@pytest.mark.parametrize(
    "arguments",
    [[], ["send"], ["parse"], ["parse", "--report", "-", "f"], ["parse", "f", "-h"],
     ["send", "--json", "a", "b"], ["send", "a", "-x"], ["send", "a", "--"],
     ["queue", "a", "b"], ["--root", "r", "send", "a", "b"], ["send", "a", "b", "-h"]],
)  # fmt: skip
def test_whatever_has_options_is_left_to_the_library(arguments: list[str]) -> None:
    """And every other command."""
    assert invocation._plain(arguments) is None


def test_a_root_whose_links_go_round_and_a_home_of_nobody_are_said(tmp_path: Path) -> None:
    """In a process of its own, as it is there that the folders of a user are looked up."""
    (tmp_path / "loop").symlink_to("loop")
    surroundings = {"HOME": "~nobody-of-that-name", "AGENTSDIR_ROOT": str(tmp_path / "loop")}

    done = subprocess.run(
        [sys.executable, "-m", "agentsdir.cli.main", "send", "a", "b"],
        env=surroundings, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert "Traceback" not in done.stderr
    assert done.returncode in (2, 10, 12), done  # which, is up to the Python
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("part", ["environment", "invocation", "sending"])
def test_a_part_that_is_gone_is_said(tmp_path: Path, part: str) -> None:
    """As when an installation was broken off: in one line, whatever is missing."""
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


def test_a_part_that_cannot_be_loaded_is_said(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under a limit of memory, where the system maps no more libraries."""

    def unloaded(_arguments: list[str], _env: Any) -> int:
        raise ImportError("orjson.so: failed to map segment from shared object")

    monkeypatch.setattr(invocation, "_invoke", unloaded)
    done = shell("send", "a", "b")

    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "cannot be loaded: orjson.so: failed to map segment" in done.err
