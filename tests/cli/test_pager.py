"""Long text goes through the user's pager where a person reads it, and nowhere else."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from typist import Typist

from agentsdir.cli.environment import Environment
from agentsdir.cli.output import print_text
from agentsdir.cli.pager import paged, pager_of


@pytest.fixture
def screen() -> Iterator[Typist]:
    """Return a terminal."""
    with Typist() as typist:
        yield typist


def surroundings(screen: Typist, variables: dict[str, str]) -> Environment:
    """Return the environment of a command that writes on a terminal."""
    stdout = io.TextIOWrapper(os.fdopen(os.dup(screen.slave), "wb"), "utf-8")
    return at(stdout, {**os.environ, **variables})


def at(stdout: TextIO, variables: dict[str, str]) -> Environment:
    """Return the environment of a command with this output and these variables."""
    return Environment(io.BytesIO(), stdout, io.StringIO(), variables, Path("/"), Path("/"))


def shown_through(
    screen: Typist, variables: dict[str, str], text: str = "text\n", *, wanted: bool = True
) -> tuple[str, str]:
    """Return what the terminal, and what stderr got, of a text."""
    env = surroundings(screen, variables)
    with paged(env, wanted=wanted):
        print_text(env, text)
    env.stdout.close()
    os.close(screen.slave)
    screen._thread.join(20)
    screen.slave = os.open(os.devnull, os.O_RDONLY)
    return screen.shown, env.stderr.getvalue()  # type: ignore[attr-defined]


MARK = f"{sys.executable} -c \"import sys; print('<' + sys.stdin.read() + '>')\""


def test_the_text_goes_through_the_pager(screen: Typist) -> None:
    """A command line with quotes is split as a shell would, and its output is on the terminal."""
    assert shown_through(screen, {"AGENTSDIR_PAGER": MARK}) == ("<text\n>\n", "")


def test_the_programs_own_variable_goes_before_that_of_all_programs(screen: Typist) -> None:
    """As GIT_PAGER does."""
    variables = {"AGENTSDIR_PAGER": MARK, "PAGER": "false"}
    assert shown_through(screen, variables) == ("<text\n>\n", "")


@pytest.mark.parametrize("pager", ["", "cat", "  "])
def test_no_pager_is_started_for_cat_or_nothing(screen: Typist, pager: str) -> None:
    """An empty AGENTSDIR_PAGER turns PAGER off."""
    variables = {"AGENTSDIR_PAGER": pager, "PAGER": MARK}
    assert shown_through(screen, variables) == ("text\n", "")


def test_no_pager_is_started_where_it_is_not_wanted(screen: Typist) -> None:
    """That is `--no-pager`."""
    assert shown_through(screen, {"PAGER": MARK}, wanted=False) == ("text\n", "")


def test_a_pager_that_does_not_start_is_named_and_the_text_is_shown(screen: Typist) -> None:
    """The text is never lost."""
    shown, said = shown_through(screen, {"PAGER": "/no/such/pager"})

    assert shown == "text\n"
    assert (
        said == "agentsdir: the pager '/no/such/pager' does not start: there is no such program\n"
    )


def test_a_pager_that_is_no_command_line_is_named(screen: Typist) -> None:
    """A quote without its end."""
    shown, said = shown_through(screen, {"PAGER": "less 'x"})

    assert (shown, said) == ("text\n", "agentsdir: $PAGER is no command line; there is no pager\n")


def test_a_reader_who_leaves_early_ends_the_block_without_an_error(screen: Typist) -> None:
    """More than a pipe holds was not read; what stands after the block runs."""
    reader = f"{sys.executable} -c \"import os; os.read(0, 4); print('enough')\""
    assert shown_through(screen, {"PAGER": reader}, "x" * 1_000_000) == ("enough\n", "")


def test_less_is_asked_for_colours_and_leaves_a_short_text_there(
    screen: Typist, tmp_path: Path
) -> None:
    """LESS is FRX unless the user has one."""
    say = f"{sys.executable} -c \"import os; print(os.environ['LESS'])\""
    assert shown_through(screen, {"PAGER": say, "LESS": "S"})[0] == "S\n"
    less = program(tmp_path / "less")
    assert pager_of(at(io.StringIO(), {"TERM": "xterm", "PATH": str(tmp_path)})) == [str(less)]
    assert pager_of(at(io.StringIO(), {"TERM": "dumb", "PATH": str(tmp_path)})) == []


def program(path: Path) -> Path:
    """Make a program that does nothing."""
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("entries", ["", ":/nowhere", "/nowhere:", ".:/nowhere"])
def test_no_pager_is_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: str
) -> None:
    """Not by an empty or relative entry of PATH: the folder may be a stranger's clone."""
    program(tmp_path / "my-less")
    program(tmp_path / "less")
    monkeypatch.chdir(tmp_path)
    env = at(io.StringIO(), {"TERM": "xterm", "PAGER": "my-less", "PATH": entries})
    assert pager_of(env) == []
    assert "the pager 'my-less' does not start" in env.stderr.getvalue()  # type: ignore[attr-defined]
    del env.variables["PAGER"]  # type: ignore[attr-defined]
    assert str(tmp_path) not in "".join(pager_of(env))
    assert "less" not in pager_of(env)


def test_ctrl_c_is_the_pagers(screen: Typist) -> None:
    """While it runs the command ignores SIGINT; afterwards it is as before."""
    env = surroundings(screen, {"PAGER": MARK})
    before = signal.getsignal(signal.SIGINT)
    with paged(env):
        os.kill(os.getpid(), signal.SIGINT)
        print_text(env, "still here\n")
    assert signal.getsignal(signal.SIGINT) is before
    env.stdout.close()


def test_a_pipe_has_no_pager() -> None:
    """What a program reads is not shown to a person."""
    out = io.StringIO()
    env = Environment(io.BytesIO(), out, io.StringIO(), {"PAGER": "false"}, Path("/"), Path("/"))
    with paged(env):
        print_text(env, "text\n")
    assert out.getvalue() == "text\n"
